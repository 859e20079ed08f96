// Findings of the rules, among them outliers: a line each at the top of the page, and all of them in full below.

import { add, button, h, list, section, type Child } from "./dom.ts";
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
  return section(
    "headlines",
    "What to look at",
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
  add(shown, word(finding), ` ${finding.message} `, h("code", { class: "id" }, finding.id));
  return shown;
}

/** A time range, extended on both sides. */
export function around(start: number, end: number): [number, number] {
  const more = Math.max(end - start, 20_000) / 2;
  return [start - more, end + more];
}

export function findings(view: View): HTMLElement {
  const { findings, checks, counts } = view.page;
  return section(
    "findings",
    "Findings",
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
  const { start, end } = finding;
  const evidence = h("dl", {});
  for (const [name, value] of Object.entries(finding.evidence))
    add(evidence, h("dt", {}, name), h("dd", {}, typeof value === "string" ? value : JSON.stringify(value)));
  return unfolding(
    finding,
    at,
    finding.where && h("p", {}, "On ", hosts(view, finding)),
    start !== null && end !== null && h("p", {}, when(view, start, end)),
    finding.details.length > 0 && list(finding.details),
    evidence.childElementCount > 0 && evidence,
  );
}

/** A finding as a line that unfolds, with its evidence before the advice. */
export function unfolding(
  finding: Pick<Finding, "id" | "severity" | "message" | "advice" | "silenced">,
  at: number,
  ...evidence: Child[]
): HTMLDetailsElement {
  return h(
    "details",
    { class: `finding ${severityOf(finding)}`, id: `finding-${at}` },
    h("summary", {}, word(finding), ` ${finding.message}`, h("code", { class: "id" }, finding.id)),
    ...evidence,
    finding.advice && h("p", {}, h("b", {}, "What to do: "), finding.advice),
    finding.silenced && h("p", {}, `Silenced: ${finding.silenced}`),
  );
}

type Judged = Pick<Finding, "severity" | "silenced">;

export function severityOf(finding: Judged): string {
  return finding.silenced ? "silenced" : finding.severity;
}

/** The severity in its colour. */
export function word(finding: Judged): HTMLElement {
  const severity = severityOf(finding);
  return h("b", { class: `word ${severity}` }, severity);
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
