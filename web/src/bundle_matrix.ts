// Nodes × items: a cell for each item of each node, and its files one click away.

import { add, button, h, scrolled, section } from "./dom.ts";
import { amount, count, number } from "./format.ts";
import type { FileOfItem, Item, Report, ReportNode } from "./bundle_model.ts";

const MARKS: Record<string, string> = {
  complete: "●",
  truncated: "◐",
  absent: "·",
  denied: "✕",
  "timed-out": "✕",
  failed: "✕",
  "not-read": "○",
};

/** The section with the table; a click on a cell lists the files of that item below the table. */
export function matrix(report: Report): HTMLElement {
  const shown = h("div", { class: "files", "aria-live": "polite" });
  const head = h("tr", {}, h("th", { scope: "col" }, "Node"), h("th", { scope: "col" }, "Findings"));
  const used = new Set(report.nodes.flatMap((node) => node.items.map((item) => item.item)));
  const columns = report.items.flatMap((name, at) => (used.has(at) ? [{ name, at }] : []));
  for (const { name } of columns) add(head, h("th", { scope: "col", class: "item" }, h("span", {}, name)));
  const body = h("tbody");
  report.nodes.forEach((node, at) => add(body, row(report, node, at, columns, shown)));
  const table = h(
    "table",
    { class: "matrix" },
    h("caption", { class: "unseen" }, "Items by node"),
    h("thead", {}, head),
    body,
  );
  return section(
    "nodes",
    "Nodes and items",
    h("p", { class: "small" }, legend(report)),
    scrolled("Items by node", table),
    shown,
    report.cluster.length > 0 && h("h3", {}, "Read once for the whole cluster"),
    ...report.cluster.map((item) => listing(report, "cluster", item)),
  );
}

function legend(report: Report): string {
  const statuses = new Map<string, number>();
  for (const node of report.nodes)
    for (const item of node.items) statuses.set(item.status, (statuses.get(item.status) ?? 0) + 1);
  const parts = [...statuses].map(([status, cells]) => `${MARKS[status] ?? "?"} ${cells} ${status}`);
  return `${parts.join(", ") || "No items"}. Choose a cell to see its files.`;
}

interface Column {
  name: string;
  at: number;
}

function row(report: Report, node: ReportNode, at: number, columns: Column[], shown: HTMLElement): HTMLElement {
  const line = h("tr", { id: `node-${at}` });
  const status = h("span", { class: `badge ${node.status}`, title: node.reason }, node.status);
  add(line, h("th", { scope: "row" }, h("bdi", {}, node.name), " ", status, node.reason && reason(node)));
  add(line, h("td", {}, found(report, at)));
  const items = new Map(node.items.map((item) => [item.item, item]));
  columns.forEach(({ name, at: place }) => {
    const item = items.get(place);
    if (!item) return add(line, h("td"));
    const label = `${node.name}, ${name}: ${item.status}${item.reason && `, ${item.reason}`}`;
    const cell = button(
      MARKS[item.status] ?? "?",
      { class: `cell ${item.status}`, title: label, "aria-label": label },
      () => {
        shown.replaceChildren(listing(report, node.name, item));
        shown.scrollIntoView({ block: "nearest" });
      },
    );
    add(line, h("td", {}, cell));
  });
  return line;
}

function reason(node: ReportNode): HTMLElement {
  return h("span", { class: "small reason" }, node.reason);
}

/** How many findings concern a node, by severity; a link to the first one. */
function found(report: Report, at: number): HTMLElement {
  const cell = h("span", {});
  for (const severity of ["fail", "warn", "note"]) {
    const places = report.findings.flatMap((one, place) =>
      one.severity === severity && !one.silenced && one.nodes.includes(at) ? [place] : [],
    );
    if (places.length)
      add(
        cell,
        h("a", { href: `#finding-${places[0]}`, class: `word ${severity}` }, `${places.length} ${severity}`),
        " ",
      );
  }
  return cell;
}

function listing(report: Report, where: string, item: Item): HTMLElement {
  const name = report.items[item.item] ?? "";
  const list = h("ul", {});
  for (const file of item.files) {
    const cut = file.truncated && `, truncated: ${file.truncated}`;
    add(list, h("li", {}, link(file.path, file.source || file.path), ` ${amount(file.size, "B")}${cut}`));
  }
  if (item.more)
    add(list, h("li", {}, `${number(item.more)} more in `, link(folder(item.files[0]!), "their directory")));
  return h(
    "div",
    { class: "listing" },
    h("h3", {}, h("bdi", {}, where), ` · ${name}: ${item.status}`, item.reason && `, ${item.reason}`),
    item.files.length ? list : h("p", { class: "small" }, `${count(0, "file")}.`),
  );
}

function folder(file: FileOfItem): string {
  return file.path.slice(0, file.path.lastIndexOf("/") + 1);
}

/** A link to a file of the report, relative to the page. */
export function link(path: string, label: string): HTMLAnchorElement {
  const address = path.split("/").map(encodeURIComponent).join("/");
  return h("a", { href: `./${address}`, rel: "noopener" }, h("bdi", {}, label));
}
