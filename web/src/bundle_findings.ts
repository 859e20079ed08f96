// Findings of an issue report with their evidence: the lines inline, and links to their files.

import { add, h, list, section } from "./dom.ts";
import { severityOf, unfolding } from "./findings.ts";
import { count, local, moment } from "./format.ts";
import { link } from "./bundle_matrix.ts";
import type { Found, Report } from "./bundle_model.ts";

const OPEN = 3; // failures that are shown with their evidence from the start

export function findings(report: Report): HTMLElement {
  return section(
    "findings",
    "Findings",
    h("p", { class: "small" }, totals(report)),
    report.findings.length
      ? h("div", { class: "findings" }, ...report.findings.map(one))
      : h("p", { class: "calm" }, "No findings."),
    report.unclear.length > 0 && unclear(report),
  );
}

function totals(report: Report): string {
  const found = Object.entries(report.counts).map(([severity, number]) => `${number} ${severity}`);
  const outcomes = Object.entries(report.outcomes).map(([outcome, number]) => `${number} ${outcome}`);
  return `Findings: ${found.join(", ")}. Rules: ${outcomes.join(", ")}.`;
}

function one(finding: Found, at: number): HTMLElement {
  const { where, first, last, details } = finding;
  const element = unfolding(
    finding,
    at,
    where && h("p", {}, "On ", h("bdi", {}, where), device(finding)),
    first !== null && last !== null && h("p", {}, when(first, last)),
    details.length > 0 && list(details),
    finding.lines.length > 0 && evidence(finding),
  );
  element.open = at < OPEN && severityOf(finding) === "fail";
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
