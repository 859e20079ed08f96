// Builds the page of an issue report from the document inside it.

import { isDark, setDark } from "./colour.ts";
import { add, button, byId, h, table } from "./dom.ts";
import { differing, scroll } from "./facts.ts";
import { count, local, moment } from "./format.ts";
import { findings } from "./bundle_findings.ts";
import { matrix } from "./bundle_matrix.ts";
import type { Report } from "./bundle_model.ts";
import "./style/theme.css";
import "./style/base.css";
import "./style/summary.css";
import "./style/lists.css";
import "./style/media.css";
import "./style/bundle.css";

function start(): void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  setDark(system.matches);
  const report = JSON.parse(byId("data").textContent ?? "") as Report;
  const main = h(
    "main",
    { id: "main" },
    verdict(report),
    findings(report),
    matrix(report),
    facts(report),
    about(report),
  );
  document.title = `${report.title} · Rollbook`;
  byId("page").replaceChildren(h("div", { class: "top" }, toolbar(report)), main);
  system.addEventListener("change", () => setDark(system.matches));
  addEventListener("hashchange", unfold);
  unfold();
}

/** Open the finding that the address names. */
function unfold(): void {
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
    target.scrollIntoView({ block: "center" });
  }
}

function toolbar(report: Report): HTMLElement {
  const links = h("nav", { "aria-label": "Sections" });
  for (const [target, name] of [
    ["findings", "Findings"],
    ["nodes", "Nodes"],
    ["facts", "Differences"],
  ] as const)
    add(links, h("a", { href: `#${target}` }, name));
  const turn = button("◐", { class: "quiet", "aria-label": "Light or dark", title: "Light or dark" }, () =>
    setDark(!isDark()),
  );
  return h(
    "header",
    { class: "toolbar" },
    h("a", { class: "skip", href: "#main" }, "Skip to the report"),
    h("span", { class: "brand" }, "Rollbook"),
    h("span", { class: "title" }, h("bdi", {}, report.title)),
    links,
    h("span", { class: "tools" }, turn),
  );
}

function verdict(report: Report): HTMLElement {
  const { level, headline, reasons } = report.verdict;
  const list = h("ul", { class: "reasons" });
  for (const reason of reasons) add(list, h("li", {}, reason));
  const sign = { good: "✓", warn: "!", bad: "✕", open: "…" }[level];
  const window =
    report.since === null && report.until === null
      ? "Logs are not limited to a time window"
      : `Time window: ${report.since === null ? "open" : moment(report.since)} to ${report.until === null ? "open" : moment(report.until)}`;
  return h(
    "section",
    { "aria-label": "Summary" },
    h(
      "div",
      { class: `verdict ${level}` },
      h("span", { class: "sign", "aria-hidden": "true" }, sign),
      h("div", {}, h("h1", {}, headline), list),
    ),
    h("p", { class: "small times", title: local(report.made) }, `Made ${moment(report.made)}. ${window}.`),
  );
}

function facts(report: Report): HTMLElement {
  const title = report.differing.length
    ? `${count(report.differing.length, "fact")} differing between similar nodes, ${report.equal} equal`
    : `No compared fact differs between similar nodes, ${report.equal} equal`;
  const rows = report.differing.map(differing);
  return h(
    "section",
    { id: "facts", "aria-labelledby": "facts-title" },
    h("h2", { id: "facts-title" }, "Differences between nodes"),
    h("p", { class: "small" }, report.compared),
    h("h3", {}, title),
    rows.length > 0 && scroll("Facts that differ", table("Facts that differ", ["Fact", "Values and nodes"], rows)),
  );
}

function about(report: Report): HTMLElement {
  const text = `Made by Rollbook ${report.rollbook}, ${moment(report.created)}. It loads nothing from the network.`;
  return h("p", { class: "small" }, text);
}

start();
