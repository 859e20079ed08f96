// Findings of the rules, among them outliers: a line each at the top of the page, and all of them in full below.

import { add, button, h, list } from "./dom.ts";
import { clock, count, local } from "./format.ts";
import type { Finding } from "./model.ts";
import type { View } from "./view.ts";

const SHOWN = 8;

/** The most important findings in a line each. */
export function headlines(view: View): HTMLElement {
  const all = view.page.findings.flatMap((finding, at) =>
    finding.silenced ? [] : [h("li", { class: finding.severity }, headline(view, finding, at))],
  );
  all.forEach((item, at) => (item.hidden = at >= SHOWN));
  const more = button(`Show ${all.length - SHOWN} more`, { class: "quiet" }, () => {
    all.forEach((item) => (item.hidden = false));
    more.remove();
  });
  return h(
    "section",
    { id: "headlines", "aria-labelledby": "headlines-title" },
    h("h2", { id: "headlines-title" }, "What to look at"),
    all.length
      ? h("ul", {}, ...all)
      : h("p", { class: view.page.verdict.level === "good" ? "calm" : "small" }, view.page.no_findings),
    all.length > SHOWN && more,
  );
}

/** A click shows an outlier in its chart, any other finding with its evidence. */
function headline(view: View, finding: Finding, at: number): HTMLElement {
  const show = (): void => {
    if (finding.metrics.length > 0 && finding.start !== null && finding.end !== null) {
      view.zoom(around(finding.start, finding.end));
      view.select(finding.hosts[0] ?? null);
      document.getElementById(`chart-${finding.metrics[0]}`)?.scrollIntoView({ block: "nearest" });
      return;
    }
    const full = document.getElementById(`finding-${at}`) as HTMLDetailsElement;
    full.open = true;
    full.scrollIntoView({ block: "center" });
    full.querySelector("summary")?.focus();
  };
  const title = finding.metrics.length > 0 ? "show it in its chart" : "evidence and advice";
  const shown = button("", { class: "link", title: `${finding.id}: ${title}` }, show);
  add(
    shown,
    h("b", { class: `word ${finding.severity}` }, finding.severity),
    ` ${finding.message} `,
    h("code", { class: "id" }, finding.id),
  );
  return shown;
}

/** A time range, extended on both sides. */
export function around(start: number, end: number): [number, number] {
  const more = Math.max(end - start, 20_000) / 2;
  return [start - more, end + more];
}

export function findings(view: View): HTMLElement {
  const { findings, checks, counts } = view.page;
  return h(
    "section",
    { id: "findings", "aria-labelledby": "findings-title" },
    h("h2", { id: "findings-title" }, "Findings"),
    checks && h("p", { class: "small" }, totals(checks, counts)),
    findings.length
      ? h("div", { class: "findings" }, ...findings.map((finding, at) => one(view, finding, at)))
      : h("p", { class: checks === null ? "small" : "calm" }, view.page.no_findings),
  );
}

/** Findings by severity, then rules by outcome: a rule can have several findings. */
function totals(checks: Record<string, number>, counts: Record<string, number>): string {
  const sum = (numbers: number[]): number => numbers.reduce((total, each) => total + each, 0);
  const listed = (entries: [string, number][]): string =>
    entries.map(([name, number]) => `${number} ${name}`).join(", ");
  const rules = Object.entries(checks).filter(([outcome]) => !(outcome in counts));
  const withFindings = sum(Object.values(checks)) - sum(rules.map(([, number]) => number));
  const found = count(sum(Object.values(counts)), "finding");
  const outcomes = listed([["with findings", withFindings], ...rules]);
  return `${found}: ${listed(Object.entries(counts))}. ${count(sum(Object.values(checks)), "rule")}: ${outcomes}.`;
}

function one(view: View, finding: Finding, at: number): HTMLElement {
  const severity = finding.silenced ? "silenced" : finding.severity;
  const element = h(
    "details",
    { class: `finding ${severity}`, id: `finding-${at}` },
    h(
      "summary",
      {},
      h("b", { class: `word ${severity}` }, severity),
      ` ${finding.message}`,
      h("code", { class: "id" }, finding.id),
    ),
  );
  if (finding.where) add(element, h("p", {}, "On ", hosts(view, finding)));
  if (finding.start !== null && finding.end !== null)
    add(element, h("p", {}, when(view, finding.start, finding.end)));
  if (finding.details.length) add(element, list(finding.details));
  const evidence = h("dl", {});
  for (const [name, value] of Object.entries(finding.evidence)) {
    add(evidence, h("dt", {}, name), h("dd", {}, typeof value === "string" ? value : JSON.stringify(value)));
  }
  if (evidence.childElementCount) add(element, evidence);
  if (finding.advice) add(element, h("p", { class: "advice" }, h("b", {}, "What to do: "), finding.advice));
  if (finding.silenced) add(element, h("p", {}, `Silenced: ${finding.silenced}`));
  return element;
}

function when(view: View, start: number, end: number): HTMLElement {
  const act = (): void => view.zoom(around(start, end));
  const title = `${local(start)} to ${local(end)}: show it`;
  return button(`${clock(start)}–${clock(end)} UTC`, { class: "link", title }, act);
}

function hosts(view: View, finding: Finding): Node {
  const only = finding.hosts.length === 1 ? finding.hosts[0]! : null;
  if (only === null) return h("bdi", {}, finding.where);
  return button(finding.where, { class: "link", title: "Show this host" }, () => view.select(only));
}
