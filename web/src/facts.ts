// Facts of the hosts: those that differ, those that changed during the run, and, folded, those that are equal.

import { add, h, table } from "./dom.ts";
import { count } from "./format.ts";
import type { Fact, Page } from "./model.ts";

export function facts(page: Page): HTMLElement {
  const element = h(
    "section",
    { id: "facts", "aria-labelledby": "facts-title" },
    h("h2", { id: "facts-title" }, "Facts"),
  );
  add(element, h("p", { class: "small" }, page.compared));
  add(
    element,
    h(
      "h3",
      {},
      page.differing.length
        ? `${count(page.differing.length, "fact")} differing between similar hosts`
        : "No compared fact differs between similar hosts",
    ),
  );
  if (page.differing.length)
    add(
      element,
      scroll(
        "Facts that differ",
        table("Facts that differ", ["Fact", "Values and hosts"], page.differing.map(differing)),
      ),
    );
  add(
    element,
    h(
      "h3",
      {},
      page.changes.length
        ? `${count(page.changes.length, "change")} between start and end`
        : page.has_end
          ? "No known change between start and end"
          : "Facts were read once, so changes are unknown",
    ),
  );
  if (page.changes.length) {
    const rows = page.changes.map((one) => [name(one), one.before, one.after, h("bdi", {}, one.where)]);
    add(element, scroll("Changes", table("Changes", ["Fact", "At the start", "At the end", "Hosts"], rows)));
  }
  const groups = new Map<string, Fact[]>();
  for (const fact of page.equal) groups.set(fact.source, [...(groups.get(fact.source) ?? []), fact]);
  const shared = h(
    "details",
    { class: "shared" },
    h("summary", {}, `${count(page.equal.length, "fact")} equal on similar hosts`),
  );
  for (const [source, list] of groups) {
    const group = h("details", {}, h("summary", {}, `${source} (${list.length})`));
    group.addEventListener(
      "toggle",
      () => group.childElementCount > 1 || add(group, scroll(source, equalTable(source, list))),
      { once: true },
    );
    add(shared, group);
  }
  if (page.equal.length) add(element, shared);
  return element;
}

function equalTable(source: string, facts: Fact[]): HTMLElement {
  return table(
    source,
    ["Fact", "Value", "Hosts"],
    facts.map((fact) => [name(fact), ...fact.values[0]!]),
  );
}

export function scroll(label: string, content: HTMLElement): HTMLElement {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, content);
}

function name(fact: { source: string; row: string; field: string }): HTMLElement {
  return h(
    "span",
    {},
    h("span", { class: "source" }, fact.source),
    " ",
    fact.row && h("b", {}, fact.row, " "),
    fact.field,
  );
}

export function differing(fact: Fact): (Node | string)[] {
  const list = h("ul", { class: "values" });
  for (const [text, where] of fact.values)
    add(list, h("li", {}, h("span", { class: "value" }, text), h("bdi", { class: "where" }, where)));
  return [name(fact), list];
}
