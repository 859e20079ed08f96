// What stands out, in words: hosts among their peers first, then what the rules found.

import { add, button, h } from "./dom.ts";
import { clock, count, local } from "./format.ts";
import type { Finding, Outlier } from "./model.ts";
import type { View } from "./view.ts";

const SHOWN = 8;

export function outliers(view: View): HTMLElement {
  const list = h("ul", { class: "outliers" });
  const all = view.page.outliers;
  all.forEach((outlier, at) => {
    const item = h("li", {}, outlierButton(view, outlier));
    item.hidden = at >= SHOWN;
    add(list, item);
  });
  const more = button(`Show ${all.length - SHOWN} more`, { class: "quiet" }, () => {
    list.querySelectorAll("li").forEach((item) => (item.hidden = false));
    more.remove();
  });
  const none =
    view.page.charts.length === 0 ? "No series was taken, so nobody can stand out." : "Nothing stands out.";
  return h(
    "section",
    { id: "stands-out", "aria-labelledby": "outliers-title" },
    h("h2", { id: "outliers-title" }, "Stands out"),
    all.length ? list : h("p", { class: "calm" }, none),
    all.length > SHOWN && more,
  );
}

function outlierButton(view: View, outlier: Outlier): HTMLElement {
  const act = (): void => {
    const around = Math.max(outlier.end - outlier.start, 20_000) / 2;
    view.zoom([outlier.start - around, outlier.end + around]);
    view.select(outlier.host);
    document.getElementById(`chart-${outlier.metric}`)?.scrollIntoView({ block: "nearest" });
  };
  const title = `${clock(outlier.start)}–${clock(outlier.end)} UTC, ${local(outlier.start)}: show it`;
  return button(outlier.text, { class: "link", title }, act);
}

export function findings(view: View): HTMLElement {
  const { findings, checks } = view.page;
  const list = h("div", { class: "findings" });
  for (const finding of findings) add(list, one(view, finding));
  const none =
    checks === null ? "This record has not been checked; rollbook check does it." : "No rule found anything.";
  const left =
    checks === null
      ? ""
      : Object.entries(checks)
          .map(([outcome, found]) => `${found} ${outcome}`)
          .join(", ");
  return h(
    "section",
    { id: "findings", "aria-labelledby": "findings-title" },
    h("h2", { id: "findings-title" }, "Findings"),
    left &&
      h(
        "p",
        { class: "small" },
        `${count(
          Object.values(checks ?? {}).reduce((sum, each) => sum + each, 0),
          "rule",
        )}: ${left}.`,
      ),
    findings.length ? list : h("p", { class: "calm" }, none),
  );
}

function one(view: View, finding: Finding): HTMLElement {
  const severity = finding.silenced ? "silenced" : finding.severity;
  const element = h(
    "details",
    { class: `finding ${severity}` },
    h(
      "summary",
      {},
      h("b", { class: `word ${severity}` }, severity),
      ` ${finding.message}`,
      h("code", { class: "id" }, finding.id),
    ),
  );
  if (finding.where) add(element, h("p", {}, "On ", hosts(view, finding)));
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

function hosts(view: View, finding: Finding): Node {
  const only = finding.hosts.length === 1 ? finding.hosts[0]! : null;
  if (only === null) return h("bdi", {}, finding.where);
  return button(finding.where, { class: "link", title: "Show this host" }, () => view.select(only));
}
