// The state that all charts share: the time range shown, the cursor, the hosts chosen. Charts listen and draw themselves.

import type { Page } from "./model.ts";

type Topic = "range" | "cursor" | "hosts" | "selected" | "theme" | "metric";

interface Cursor {
  time: number;
  host: number | null;
}

/** Whether a name contains every word of the filter; `*` matches anything. */
export function matches(name: string, filter: string): boolean {
  const lower = name.toLowerCase();
  return filter
    .toLowerCase()
    .split(/[\s,]+/)
    .filter((word) => word !== "")
    .every((word) => pattern(word).test(lower));
}

function pattern(word: string): RegExp {
  const parts = word.split("*").map((part) => part.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  // A word without a star may be anywhere in the name; one with a star must match all of it.
  return new RegExp(parts.length === 1 ? parts[0]! : `^${parts.join(".*")}$`);
}

/** The range, moved inside the whole and at least `least` long. */
export function within(range: [number, number], whole: [number, number], least: number): [number, number] {
  const length = Math.min(Math.max(range[1] - range[0], least), whole[1] - whole[0]);
  const start = Math.min(Math.max(range[0], whole[0]), whole[1] - length);
  return [start, start + length];
}

export class View {
  readonly page: Page;
  readonly whole: [number, number];
  range: [number, number];
  cursor: Cursor | null = null;
  selected: number | null = null;
  /** The metric that the reader chose, by the name of its chart. */
  metric: string | null = null;
  /** The status of the hosts to show; null for all. */
  status: string | null = null;
  /** The indices of the hosts to show, in order. */
  hosts: number[];
  private filter = "";
  private order: "name" | "unusual" = "name";
  private readonly listeners = new Map<Topic, Set<() => void>>();

  constructor(page: Page) {
    this.page = page;
    this.whole = [page.start, Math.max(page.end, page.start + 1000)];
    // A sample is drawn in the middle of its cell, which may be before the start or after the end of the run.
    for (const { start, bucket, packed } of page.charts) {
      const end = start + packed.buckets * bucket;
      if (start + bucket / 2 < this.whole[0]) this.whole[0] = start;
      if (end - bucket / 2 > this.whole[1]) this.whole[1] = end;
    }
    this.range = this.whole;
    this.hosts = page.hosts.map((_, at) => at);
  }

  on(topic: Topic, listen: () => void): () => void {
    const listeners = this.listeners.get(topic) ?? new Set();
    this.listeners.set(topic, listeners.add(listen));
    return () => listeners.delete(listen);
  }

  notify(topic: Topic): void {
    this.listeners.get(topic)?.forEach((listen) => listen());
  }

  get zoomed(): boolean {
    return this.range[0] !== this.whole[0] || this.range[1] !== this.whole[1];
  }

  zoom(range: [number, number]): void {
    const least = Math.max(1000, 5000 * (this.page.interval ?? 0));
    this.range = within(range, this.whole, least);
    this.notify("range");
  }

  /** Zoom by a factor around a time; a factor above 1 shows more. */
  scale(factor: number, around = this.cursor?.time ?? (this.range[0] + this.range[1]) / 2): void {
    this.zoom([around - (around - this.range[0]) * factor, around + (this.range[1] - around) * factor]);
  }

  /** Move by a share of the range. */
  pan(share: number): void {
    const by = share * (this.range[1] - this.range[0]);
    this.zoom([this.range[0] + by, this.range[1] + by]);
  }

  point(cursor: Cursor | null): void {
    this.cursor = cursor;
    this.notify("cursor");
  }

  select(host: number | null): void {
    if (host === this.selected) return;
    this.selected = host;
    this.notify("selected");
  }

  /** Select the host that many places further down the list. */
  step(by: number): void {
    if (this.hosts.length === 0) return;
    const at = this.selected === null ? -1 : this.hosts.indexOf(this.selected);
    const next = at < 0 ? (by > 0 ? 0 : this.hosts.length - 1) : at + by;
    this.select(this.hosts[Math.min(this.hosts.length - 1, Math.max(0, next))]!);
  }

  /** The zoom, the host and the metric as the part of the address after `#`. */
  get address(): string {
    const parts = new URLSearchParams();
    if (this.metric) parts.set("metric", this.metric);
    if (this.selected !== null) parts.set("host", this.page.hosts[this.selected]!.name);
    if (this.zoomed) {
      const [from, to] = this.range.map((time) => ((time - this.page.start) / 1000).toFixed(1));
      parts.set("from", from!);
      parts.set("to", to!);
    }
    return parts.toString();
  }

  /** Take zoom, host and metric from such a text; any other text changes nothing. */
  follow(address: string): void {
    if (!address.includes("=")) return;
    const parts = new URLSearchParams(address);
    const [from, to] = ["from", "to"].map((name) => Number.parseFloat(parts.get(name) ?? ""));
    const host = this.page.hosts.findIndex((one) => one.name === parts.get("host"));
    if (parts.has("host")) this.select(host < 0 ? null : host);
    if (Number.isFinite(from) && Number.isFinite(to) && to! > from!)
      this.zoom([this.page.start + 1000 * from!, this.page.start + 1000 * to!]);
    const metric = parts.get("metric");
    if (!this.page.charts.some((chart) => chart.id === metric)) return;
    this.metric = metric;
    this.notify("metric");
  }

  choose(choice: { filter?: string; status?: string | null; order?: "name" | "unusual" }): void {
    this.filter = choice.filter ?? this.filter;
    this.status = choice.status === undefined ? this.status : choice.status;
    this.order = choice.order ?? this.order;
    const hosts = this.page.hosts
      .map((_, at) => at)
      .filter((at) => matches(this.page.hosts[at]!.name, this.filter))
      .filter((at) => this.status === null || this.page.hosts[at]!.status === this.status);
    if (this.order === "unusual") {
      const rank = new Map<number, number>();
      const outliers = this.page.findings.filter((finding) => finding.metrics.length > 0 && !finding.silenced);
      outliers.forEach(({ hosts: [host] }, at) => host !== undefined && !rank.has(host) && rank.set(host, at));
      const place = (host: number): number =>
        rank.get(host) ?? outliers.length + (this.page.hosts[host]!.status === "complete" ? 1 : 0);
      hosts.sort((one, other) => place(one) - place(other) || one - other);
    }
    this.hosts = hosts;
    this.notify("hosts");
  }
}
