// The issue report that was collected because the run failed: a link to its page, and what was found in logs.

import { add, button, h, section } from "./dom.ts";
import { around, word } from "./findings.ts";
import { clock, count, local } from "./format.ts";
import type { View } from "./view.ts";

export function issueReport(view: View): HTMLElement | null {
  const report = view.page.issue_report;
  if (!report) return null;
  const list = h("ul", {});
  for (const finding of report.findings) {
    const { start, end } = finding;
    if (start === null || end === null) continue;
    const show = (): void => {
      view.zoom(around(start, end));
      view.select(finding.hosts[0] ?? null);
    };
    const time = button(`${clock(start)} UTC`, { class: "link when", title: `${local(start)}: show it` }, show);
    add(list, h("li", {}, word(finding), " ", time, ` ${finding.message}`));
  }
  const found = report.findings.length
    ? `${count(report.findings.length, "finding")} in logs during the run, also shown on the timeline.`
    : "Nothing was found in logs during the run.";
  return section(
    "issue-report",
    "Issue report",
    h("p", {}, h("a", { href: report.page }, "Open the issue report of the affected hosts"), `. ${found}`),
    report.findings.length > 0 && list,
  );
}
