// The run at a glance: verdict, command, time, hosts, findings, and the overhead of Rollbook.

import { add, button, h, list, table } from "./dom.ts";
import { amount, clock, count, date, duration, local, moment, number, times } from "./format.ts";
import type { Page, Result } from "./model.ts";
import type { View } from "./view.ts";

const SIGNS = { good: "✓", warn: "!", bad: "✕", open: "?" };
const SEVERITIES = ["fail", "warn"];

export function summary(view: View): HTMLElement {
  const { page } = view;
  return h(
    "section",
    { id: "summary", "aria-labelledby": "verdict" },
    verdict(page.verdict, SIGNS),
    stderr(page),
    h("div", { class: "tiles" }, command(page), time(page), hosts(view), findings(page), cost(page)),
    h("div", { class: "outcome" }, results(page), load(view)),
  );
}

/** The verdict in one line with its sign, and the reasons. */
export function verdict(
  { level, headline, reasons }: Page["verdict"],
  signs: Record<Page["verdict"]["level"], string>,
): HTMLElement {
  return h(
    "div",
    { class: `verdict ${level}` },
    h("span", { class: "sign", "aria-hidden": "true" }, signs[level]),
    h("div", {}, h("h1", { id: "verdict" }, headline), list(reasons, { class: "reasons" })),
  );
}

/** The last lines of a failed command. */
function stderr(page: Page): HTMLElement | null {
  const lines = page.summary.command?.stderr ?? page.summary.command?.output ?? [];
  if (lines.length === 0) return null;
  const text = h("pre", { class: "stderr", "aria-label": "Last lines of the command's output" });
  lines.forEach((line, at) => add(text, at ? document.createElement("br") : null, line));
  return text;
}

/** What the benchmark measured, a row for each job; null without results. */
function results(page: Page): HTMLElement | null {
  const jobs = new Map<string, Result[]>();
  for (const one of page.summary.results ?? []) {
    if (/error/.test(one.metric) && one.value === 0) continue; // no error is no result
    const name = [one.job, one.host, one.phase?.startsWith("epoch ") ? one.phase : ""].filter(Boolean).join(" ");
    jobs.set(name, [...(jobs.get(name) ?? []), one]);
  }
  if (jobs.size === 0) return null;
  const rows = [...jobs].flatMap(([job, found]) =>
    found.map((one, at) => [at ? "" : job || page.title.split(" ")[0]!, name(one), value(one)]),
  );
  const seen = h("ul", { class: "small" });
  for (const one of page.summary.seen ?? []) {
    const moved = `${one.direction === "read" ? "read" : "wrote"} ${amount(one.counted_bytes, "B")}`;
    add(seen, h("li", { class: one.agrees ? "" : "word warn" }, `The hosts ${moved}: ${one.text}.`));
  }
  const shown = table("Results of the benchmark", ["Job", "Result", "Value"], rows);
  return h(
    "div",
    { class: "tile", id: "results" },
    h("h2", {}, "Results"),
    h("div", { class: "scroll" }, shown),
    seen,
  );
}

function name(one: Result): string {
  const ends = /_(?:bytes_per_second|samples_per_second|[MG]B_per_second|percentage|seconds|ns|us|ms|GB)$/;
  return one.metric.replace(ends, "").replaceAll("_", " ");
}

function value(one: Result): string {
  return one.value === undefined ? (one.text ?? "") : amount(one.value, one.unit ?? "");
}

/** Mean and peak of what moved; null if nothing did. */
function load(view: View): HTMLElement | null {
  const { page } = view;
  const metrics = page.summary.metrics ?? [];
  if (metrics.length === 0) return null;
  const many = metrics.some((one) => (one.hosts ?? 1) > 1);
  const rows = metrics.map((one) => {
    const cells: (Node | string)[] = [
      h("a", { href: `#metric=${one.name}` }, one.title),
      amount(one.mean, one.unit),
      amount(one.peak, one.unit),
    ];
    if (many) {
      const at = page.hosts.findIndex((host) => host.name === one.slowest);
      const slowest = at < 0 ? "" : button(one.slowest!, { class: "link" }, () => view.select(at));
      cells.push(
        one.total === undefined ? "" : amount(one.total, one.unit),
        h("span", {}, slowest, " ", at < 0 ? "" : `${times(one.slowest_ratio!)} the median`),
      );
    }
    return cells;
  });
  const headings = ["", "Mean", "Peak", ...(many ? ["All hosts", "Slowest host"] : [])];
  const title = many ? "Load, per host" : "Load";
  const shown = table("Mean and peak of the main metrics", headings, rows);
  return h("div", { class: "tile", id: "load" }, h("h2", {}, title), h("div", { class: "scroll" }, shown));
}

function tile(title: string, figure: Node | string, ...rest: (Node | string | null)[]): HTMLElement {
  const element = h("div", { class: "tile" }, h("h2", {}, title), h("p", { class: "figure" }, figure));
  for (const one of rest)
    if (one !== null && one !== "") add(element, one instanceof Node ? one : h("p", { class: "small" }, one));
  return element;
}

function command(page: Page): HTMLElement | null {
  const { command } = page;
  if (!command) return null;
  const how =
    command.code === null
      ? "exit status unknown"
      : command.code === 0
        ? "exit status 0"
        : `failed with exit status ${command.code}`;
  return tile("Command", h("code", { title: command.text }, command.text), how);
}

function time(page: Page): HTMLElement {
  const [start, end] = [page.command?.start ?? page.start, page.command?.end ?? page.end];
  const at = (ms: number, text: string): HTMLElement =>
    h("time", { datetime: new Date(ms).toISOString(), title: local(ms) }, text);
  const title = `${moment(start)}, ${local(start)}`;
  const begin = at(start, `${date(start)} ${clock(start)}`);
  const when = h("p", { class: "small", title }, begin, "–", at(end, clock(end)), " UTC");
  const every =
    page.interval && page.summary.samples ? `a sample every ${duration(1000 * page.interval)}` : "no samples";
  return tile("Duration", duration(end - start), when, every);
}

function hosts(view: View): HTMLElement {
  const { coverage } = view.page;
  const total = Object.values(coverage).reduce((sum, one) => sum + one, 0);
  const bar = h("div", { class: "bar", "aria-hidden": "true" });
  const buttons = h("p", { class: "small statuses" });
  for (const [status, hosts] of Object.entries(coverage)) {
    const part = h("span", { class: status });
    part.style.flexGrow = String(hosts);
    add(bar, part);
    const chip = button(`${hosts} ${status}`, { class: `badge ${status}`, "aria-pressed": "false" }, () => {
      view.choose({ status: view.status === status ? null : status });
    });
    view.on("hosts", () => chip.setAttribute("aria-pressed", String(view.status === status)));
    add(buttons, chip);
  }
  if (total === 0) return tile("Hosts", "none recorded");
  return tile("Hosts", `${coverage["complete"] ?? 0} of ${total} complete`, bar, buttons);
}

function findings(page: Page): HTMLElement {
  const counted = page.findings.filter((finding) => finding.silenced === "");
  const line = h("span", {});
  for (const severity of SEVERITIES.filter((severity) => page.counts[severity]))
    add(line, h("span", { class: `word ${severity}` }, `${page.counts[severity]} ${severity}`), " ");
  const none = page.checks === null ? "not checked" : "none";
  const unclear = page.checks?.["could-not-tell"] ?? 0;
  const passed =
    page.checks === null
      ? ""
      : `${count(page.checks["pass"] ?? 0, "check")} passed${unclear ? `, ${unclear} could not tell` : ""}`;
  const outliers = new Set(counted.filter((one) => one.metrics.length > 0).flatMap((one) => one.hosts)).size;
  return tile(
    "Findings",
    line.childElementCount ? line : none,
    passed,
    outliers > 0 ? `outliers on ${count(outliers, "host")}` : "",
  );
}

function cost(page: Page): HTMLElement | null {
  if (!page.cost) return null;
  const { memory_bytes, sent_bytes, hosts } = page.cost;
  const spent = `${amount(memory_bytes, "B")} of memory, ${amount(sent_bytes, "B")} sent`;
  const median = hosts > 1 ? `; median of ${count(hosts, "host")}` : "";
  const { overhead } = page.summary;
  if (!overhead) return tile("Rollbook overhead", amount(memory_bytes, "B"), `${spent}${median}`);
  const most = hosts > 1 ? `at most ${number(overhead.most_cpu_seconds)} CPU s on a host` : "";
  const share =
    overhead.most_share === undefined ? "" : `at most ${number(100 * overhead.most_share)} % of a host's CPUs`;
  return tile("Rollbook overhead", `${number(overhead.cpu_seconds)} CPU s`, most, share, `${spent}${median}`);
}
