// One host beside the charts: its status, findings, and each of its metrics and devices against its peers.

import { cellsOf, lineOf, timesOf } from "./chart.ts";
import { LINES, lineColour } from "./colour.ts";
import type { Cells } from "./decode.ts";
import { add, button, h, visible } from "./dom.ts";
import { word } from "./findings.ts";
import { amount, clock, count, local, number } from "./format.ts";
import { Lines, type Line } from "./lines.ts";
import type { Chart, Devices, Host } from "./model.ts";
import { bands } from "./stats.ts";
import type { View } from "./view.ts";

const HEIGHT = 104;

export class HostPanel {
  readonly element: HTMLElement;
  private readonly view: View;
  private drawn: Lines[] = [];
  private opener: Element | null = null;
  /** How often a host was shown; drawing for an earlier one is abandoned. */
  private times = 0;

  constructor(view: View) {
    this.view = view;
    this.element = h("aside", { class: "panel", "aria-label": "One host", tabindex: -1, hidden: true });
    view.on("selected", () => void this.show());
    view.on("theme", () => void this.show());
    view.on("range", () => this.drawn.forEach((lines) => lines.draw()));
    new ResizeObserver(() => this.drawn.forEach((lines) => lines.resize())).observe(this.element);
  }

  private async show(): Promise<void> {
    const { view } = this;
    const at = view.selected;
    const time = ++this.times;
    if (at !== null && this.element.hidden) this.opener = document.activeElement;
    this.element.hidden = at === null;
    this.drawn.forEach((lines) => lines.destroy());
    this.drawn = [];
    if (at === null) {
      if (this.opener instanceof HTMLElement) this.opener.focus({ preventScroll: true });
      return;
    }
    const host = view.page.hosts[at]!;
    const charts = h("div", { class: "minis" });
    this.element.setAttribute("aria-label", visible(`Host ${host.name}`));
    this.element.replaceChildren(this.heading(host), this.facts(host), this.findings(at), charts);
    this.element.scrollTop = 0;
    for (const chart of view.page.charts) {
      const row = chart.hosts.indexOf(at);
      if (row < 0) continue;
      const cells = await cellsOf(chart);
      if (this.times !== time) return; // another host or theme was chosen meanwhile
      const { median, p95, min } = bands(
        cells,
        chart.hosts.map((_, place) => place),
      );
      const lines: Line[] = [
        { values: p95, colour: "band-edge", width: 0.5 },
        { values: min, colour: "band-edge", width: 0.5 },
        { values: median, colour: "median", dash: [4, 3] },
        { values: lineOf(cells.mean, cells, row), colour: "accent", width: 1.75 },
      ];
      this.add(charts, chart, chart.title, timesOf(chart), lines, true);
      if (!chart.devices) continue;
      const devices = await cellsOf(chart.devices);
      if (this.times !== time) return;
      this.devices(charts, chart, chart.devices, devices, at);
    }
  }

  private add(
    charts: HTMLElement,
    chart: Chart,
    title: string,
    times: number[],
    lines: Line[],
    peers: boolean,
  ): void {
    const drawn = new Lines(this.view, `${title} of this host`, chart.unit, chart.ceiling, HEIGHT);
    add(charts, h("h4", { title: chart.description }, title), drawn.element);
    drawn.show(times, lines, peers ? [{ upper: 0, lower: 1, colour: "band" }] : []);
    this.drawn.push(drawn);
  }

  private devices(charts: HTMLElement, chart: Chart, devices: Devices, cells: Cells, host: number): void {
    const rows = devices.hosts.map((_, row) => row).filter((row) => devices.hosts[row] === host);
    const most = (row: number): number =>
      cells.high
        .subarray(row * cells.buckets, (row + 1) * cells.buckets)
        .reduce((one, other) => (other > one ? other : one), 0);
    const shown = rows.sort((one, other) => most(other) - most(one)).slice(0, LINES);
    if (shown.length === 0) return;
    const lines = shown.map((row, at) => ({ values: lineOf(cells.mean, cells, row), colour: lineColour(at) }));
    this.add(charts, chart, `${chart.title} by device`, timesOf(devices), lines, false);
    const names = h("p", { class: "key" });
    shown.forEach((row, at) => {
      const swatch = h("span", { class: "swatch device" }, devices.names[row]!);
      swatch.style.setProperty("--swatch", `var(--${lineColour(at)})`);
      add(names, swatch);
    });
    if (rows.length > shown.length)
      add(names, h("span", {}, `and ${count(rows.length - shown.length, "quieter device")}`));
    add(charts, names);
  }

  private heading(host: Host): HTMLElement {
    return h(
      "header",
      {},
      button("‹", { class: "quiet", "aria-label": "Previous host (key k)" }, () => this.view.step(-1)),
      button("›", { class: "quiet", "aria-label": "Next host (key j)" }, () => this.view.step(1)),
      h("h2", {}, h("bdi", {}, host.name)),
      h("span", { class: `badge ${host.status}` }, host.status),
      button("×", { class: "quiet close", "aria-label": "Close (Escape)" }, () => this.view.select(null)),
    );
  }

  private facts(host: Host): HTMLElement {
    const list = h("dl", {});
    const row = (term: string, text: string | null): void => {
      if (text) add(list, h("dt", {}, term), h("dd", {}, text));
    };
    row("Reason", host.reason);
    row("Transport", host.method);
    if (host.samples !== null)
      row(
        "Samples",
        `${number(host.samples)} of ${number(host.samples + (host.missed ?? 0))}, ${host.late ?? 0} late, ${host.missed ?? 0} missed`,
      );
    if (host.clock_offset_ms !== null) {
      row(
        "Clock",
        `${number(host.clock_offset_ms)} ± ${number(host.clock_bound_ms ?? 0)} ms offset, corrected on this page`,
      );
    }
    if (host.cpu_share !== null)
      row(
        "Rollbook overhead",
        `${number(100 * host.cpu_share)} % of its CPUs, at most ${amount(host.memory_bytes, "B")} of memory`,
      );
    for (const [term, text] of host.about) row(term, text);
    if (host.boots > 1) row("Boots", `${host.boots} in this run`);
    return list;
  }

  private findings(at: number): HTMLElement {
    const list = h("ul", { class: "host-findings" });
    for (const finding of this.view.page.findings.filter((one) => one.hosts.includes(at)))
      add(list, h("li", {}, word(finding), ` ${finding.message}`));
    const { losses, source_gaps, gaps } = this.view.page.hosts[at]!;
    for (const loss of losses) add(list, h("li", {}, loss));
    for (const gap of [...source_gaps, ...gaps]) {
      const what = "source" in gap ? `${gap.source} without samples` : "no samples";
      const text = `${what} ${clock(gap.start)}–${clock(gap.end)} UTC: ${gap.why}`;
      add(list, h("li", { title: local(gap.start) }, text));
    }
    if (this.view.page.hosts.length === 1) return h("div", {}, list);
    const key = h(
      "p",
      { class: "key" },
      h("span", { class: "swatch host" }, "this host"),
      h("span", { class: "swatch median" }, "median of all"),
      h("span", { class: "swatch outer" }, "min to p95 of all"),
    );
    return h("div", {}, list, key);
  }
}
