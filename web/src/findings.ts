// What is wrong, in words: what the rules found and who stands out among its peers, first in a line each, then in full.

import { add, button, h } from "./dom.ts";
import { clock, count, local } from "./format.ts";
import type { Finding, Outlier } from "./model.ts";
import type { View } from "./view.ts";

const SHOWN = 8;
const FOUND = 4; // of these, findings, where hosts stand out too

export function outliers(view: View): HTMLElement {
  const list = h("ul", { class: "outliers" });
  const found = view.page.findings.flatMap((finding, at) =>
    finding.silenced ? [] : [h("li", { class: finding.severity }, findingButton(finding, at))],
  );
  const odd = view.page.outliers.map((outlier) => h("li", { class: "odd" }, outlierButton(view, outlier)));
  const first = Math.max(FOUND, SHOWN - odd.length);
  const all = [...found.slice(0, first), ...odd, ...found.slice(first)];
  all.forEach((item, at) => (item.hidden = at >= SHOWN));
  add(list, ...all);
  const more = button(`Show ${all.length - SHOWN} more`, { class: "quiet" }, () => {
    all.forEach((item) => (item.hidden = false));
    more.remove();
  });
  return h(
    "section",
    { id: "stands-out", "aria-labelledby": "outliers-title" },
    h("h2", { id: "outliers-title" }, "Stands out"),
    all.length
      ? list
      : h("p", { class: view.page.verdict.level === "good" ? "calm" : "small" }, view.page.no_outliers),
    all.length > SHOWN && more,
  );
}

function findingButton(finding: Finding, at: number): HTMLElement {
  const show = (): void => {
    const full = document.getElementById(`finding-${at}`) as HTMLDetailsElement;
    full.open = true;
    full.scrollIntoView({ block: "center" });
    full.querySelector("summary")?.focus();
  };
  const shown = button("", { class: "link", title: `${finding.id}: evidence and advice` }, show);
  add(
    shown,
    h("b", { class: `word ${finding.severity}` }, finding.severity),
    ` ${finding.message} `,
    h("code", { class: "id" }, finding.id),
  );
  return shown;
}

function outlierButton(view: View, outlier: Outlier): HTMLElement {
  const act = (): void => {
    view.zoom(around(outlier.start, outlier.end));
    view.select(outlier.host);
    document.getElementById(`chart-${outlier.metric}`)?.scrollIntoView({ block: "nearest" });
  };
  const title = `${clock(outlier.start)}–${clock(outlier.end)} UTC, ${local(outlier.start)}: show it`;
  return button(outlier.text, { class: "link", title }, act);
}

/** A stretch of time with some more on both sides. */
function around(start: number, end: number): [number, number] {
  const more = Math.max(end - start, 20_000) / 2;
  return [start - more, end + more];
}

export function findings(view: View): HTMLElement {
  const { findings, checks, counts } = view.page;
  const list = h("div", { class: "findings" });
  findings.forEach((finding, at) => add(list, one(view, finding, at)));
  const none =
    checks === null ? "This record has not been checked; rollbook check does it." : "No rule found anything.";
  return h(
    "section",
    { id: "findings", "aria-labelledby": "findings-title" },
    h("h2", { id: "findings-title" }, "Findings"),
    checks && h("p", { class: "small" }, totals(checks, counts)),
    findings.length ? list : h("p", { class: checks === null ? "small" : "calm" }, none),
  );
}

/** Findings by severity, then rules by outcome: a rule can have several findings. */
function totals(checks: Record<string, number>, counts: Record<string, number>): string {
  const sum = (numbers: number[]): number => numbers.reduce((total, each) => total + each, 0);
  const list = (entries: [string, number][]): string => entries.map(([name, number]) => `${number} ${name}`).join(", ");
  const rules = Object.entries(checks).filter(([outcome]) => !(outcome in counts));
  const withFindings = sum(Object.values(checks)) - sum(rules.map(([, number]) => number));
  const found = count(sum(Object.values(counts)), "finding");
  const outcomes = list([["with findings", withFindings], ...rules]);
  return `${found}: ${list(Object.entries(counts))}. ${count(sum(Object.values(checks)), "rule")}: ${outcomes}.`;
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
  const details = h("ul", {});
  for (const detail of finding.details) add(details, h("li", {}, detail));
  if (finding.details.length) add(element, details);
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
