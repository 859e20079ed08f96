// The run at a glance: verdict, command, time, hosts, findings, and the overhead of Rollbook.

import { add, button, h } from "./dom.ts";
import { amount, clock, count, date, duration, local, moment, number } from "./format.ts";
import type { Page } from "./model.ts";
import type { View } from "./view.ts";

const SIGNS = { good: "✓", warn: "!", bad: "✕" };
const SEVERITIES = ["fail", "warn"];

export function summary(view: View): HTMLElement {
  const { page } = view;
  const reasons = h("ul", { class: "reasons" });
  for (const reason of page.verdict.reasons) add(reasons, h("li", {}, reason));
  return h(
    "section",
    { id: "summary", "aria-labelledby": "verdict" },
    h(
      "div",
      { class: `verdict ${page.verdict.level}` },
      h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[page.verdict.level]),
      h("div", {}, h("h1", { id: "verdict" }, page.verdict.headline), reasons),
    ),
    h("div", { class: "tiles" }, command(page), time(page), hosts(view), findings(page), cost(page)),
  );
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
      ? "exit code unknown"
      : command.code === 0
        ? "exit code 0"
        : `failed with exit code ${command.code}`;
  const element = tile("Command", h("code", { title: command.text }, command.text), how);
  element.classList.add("wide");
  return element;
}

function time(page: Page): HTMLElement {
  const [start, end] = [page.command?.start ?? page.start, page.command?.end ?? page.end];
  const when = h("p", { class: "small" });
  add(
    when,
    h("time", { datetime: new Date(start).toISOString(), title: local(start) }, `${date(start)} ${clock(start)}`),
  );
  add(when, "–", h("time", { datetime: new Date(end).toISOString(), title: local(end) }, clock(end)), " UTC");
  when.title = `${moment(start)}, ${local(start)}`;
  const every = page.interval === null ? "no samples" : `a sample every ${duration(1000 * page.interval)}`;
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
      const chosen = view.chosenStatus === status ? null : status;
      view.choose({ status: chosen });
    });
    view.on("hosts", () => chip.setAttribute("aria-pressed", String(view.chosenStatus === status)));
    add(buttons, chip);
  }
  return tile("Hosts", `${coverage["complete"] ?? 0} of ${total} complete`, bar, buttons);
}

function findings(page: Page): HTMLElement {
  const counted = page.findings.filter((finding) => finding.silenced === "");
  const line = h("span", {});
  for (const severity of SEVERITIES.filter((severity) => page.counts[severity]))
    add(line, h("span", { class: `word ${severity}` }, `${page.counts[severity]} ${severity}`), " ");
  const none = page.checks === null ? "not checked" : "none";
  const passed =
    page.checks === null
      ? ""
      : `${count(page.checks["pass"] ?? 0, "check")} passed, ${page.checks["could-not-tell"] ?? 0} could not tell`;
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
  const { cpu_share, worst_share, worst_host, memory_bytes, sent_bytes, hosts } = page.cost;
  const share = (value: number): string => `${number(100 * value)} %`;
  const figure = cpu_share === null ? amount(memory_bytes, "B") : `${share(cpu_share)} of the CPUs`;
  const worst = worst_share === null ? "" : `at most ${share(worst_share)}, on ${worst_host}`;
  const spent = `${amount(memory_bytes, "B")} of memory, ${amount(sent_bytes, "B")} sent`;
  return tile("Rollbook overhead", figure, worst, `${spent}; median of ${count(hosts, "host")}`);
}
