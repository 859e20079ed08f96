// Findings of an issue report with their evidence: the lines inline, and links to their files.

import { add, h, list } from "./dom.ts";
import { count, local, moment } from "./format.ts";
import { link } from "./bundle_matrix.ts";
import type { Found, Report } from "./bundle_model.ts";

const OPEN = 3; // failures that are shown with their evidence from the start

export function findings(report: Report): HTMLElement {
  const section = h(
    "section",
    { id: "findings", "aria-labelledby": "findings-title" },
    h("h2", { id: "findings-title" }, "Findings"),
    h("p", { class: "small" }, totals(report)),
    report.findings.length
      ? h("div", { class: "findings" }, ...report.findings.map(one))
      : h("p", { class: "calm" }, "No findings."),
  );
  if (report.unclear.length) add(section, unclear(report));
  return section;
}

function totals(report: Report): string {
  const found = Object.entries(report.counts).map(([severity, number]) => `${number} ${severity}`);
  const outcomes = Object.entries(report.outcomes).map(([outcome, number]) => `${number} ${outcome}`);
  return `Findings: ${found.join(", ")}. Rules: ${outcomes.join(", ")}.`;
}

function one(finding: Found, at: number): HTMLElement {
  const severity = finding.silenced ? "silenced" : finding.severity;
  const element = h(
    "details",
    { class: `finding ${severity}`, id: `finding-${at}`, open: at < OPEN && severity === "fail" },
    h(
      "summary",
      {},
      h("b", { class: `word ${severity}` }, severity),
      ` ${finding.message}`,
      h("code", { class: "id" }, finding.id),
    ),
  );
  if (finding.where) add(element, h("p", {}, "On ", h("bdi", {}, finding.where), device(finding)));
  if (finding.first !== null && finding.last !== null) add(element, h("p", {}, when(finding.first, finding.last)));
  if (finding.details.length) add(element, list(finding.details));
  if (finding.lines.length) add(element, evidence(finding));
  if (finding.advice) add(element, h("p", { class: "advice" }, h("b", {}, "What to do: "), finding.advice));
  if (finding.silenced) add(element, h("p", {}, `Silenced: ${finding.silenced}`));
  return element;
}

function device(finding: Found): string {
  const times = finding.count > 1 ? `, ${count(finding.count, "event")}` : "";
  return `${finding.device && `, ${finding.device}`}${times}`;
}

function when(first: number, last: number): HTMLElement {
  const text = first === last ? moment(first) : `${moment(first)} to ${moment(last)}`;
  return h("span", { title: `${local(first)} to ${local(last)}` }, text);
}

function evidence(finding: Found): HTMLElement {
  const lines = h("ol", { class: "lines" });
  for (const line of finding.lines)
    add(
      lines,
      h(
        "li",
        {},
        h("span", { class: "at" }, link(line.path, line.path), `:${line.line}`),
        h("code", {}, line.text),
      ),
    );
  return lines;
}

function unclear(report: Report): HTMLElement {
  const rules = h("ul", {});
  for (const [rule, reason] of report.unclear) add(rules, h("li", {}, h("code", {}, rule), `: ${reason}`));
  return h(
    "details",
    { class: "shared" },
    h("summary", {}, `${count(report.unclear.length, "rule")} could not tell, or not on every node`),
    rules,
  );
}
