// Facts of the hosts: those that differ, those that changed during the run, and, folded, those that are equal.

import { add, h, scrolled, section, table, type Child } from "./dom.ts";
import { count } from "./format.ts";
import type { Fact, Page } from "./model.ts";

export function facts(page: Page): HTMLElement {
  const title = page.changes.length
    ? `${count(page.changes.length, "change")} between start and end`
    : page.has_end
      ? "No known change between start and end"
      : "Facts were read once, so changes are unknown";
  const rows = page.changes.map((one) => [name(one), one.before, one.after, h("bdi", {}, one.where)]);
  return section(
    "facts",
    "Facts",
    h("p", { class: "small" }, page.compared),
    ...differences(page.differing, "hosts"),
    h("h3", {}, title),
    rows.length > 0 && sheet("Changes", ["Fact", "At the start", "At the end", "Hosts"], rows),
    page.equal.length > 0 && equal(page.equal),
  );
}

/** The facts that differ, under a heading that ends with `more`. */
export function differences(facts: Fact[], who: "hosts" | "nodes", more = ""): Child[] {
  const found = facts.length ? `${count(facts.length, "fact")} differing` : "No compared fact differs";
  return [
    h("h3", {}, `${found} between similar ${who}${more}`),
    facts.length > 0 && sheet("Facts that differ", ["Fact", `Values and ${who}`], facts.map(differing)),
  ];
}

/** The facts that are equal, by source; their tables are made when they are unfolded. */
function equal(facts: Fact[]): HTMLElement {
  const groups = new Map<string, Fact[]>();
  for (const fact of facts) groups.set(fact.source, [...(groups.get(fact.source) ?? []), fact]);
  const shared = h(
    "details",
    { class: "shared" },
    h("summary", {}, `${count(facts.length, "fact")} equal on similar hosts`),
  );
  for (const [source, list] of groups) {
    const group = h("details", {}, h("summary", {}, `${source} (${list.length})`));
    const fill = (): void => {
      const rows = list.map((fact) => [name(fact), ...fact.values[0]!]);
      add(group, sheet(source, ["Fact", "Value", "Hosts"], rows));
    };
    group.addEventListener("toggle", fill, { once: true });
    add(shared, group);
  }
  return shared;
}

function sheet(caption: string, headings: string[], rows: Child[][]): HTMLElement {
  return scrolled(caption, table(caption, headings, rows));
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

function differing(fact: Fact): (Node | string)[] {
  const list = h("ul", { class: "values" });
  for (const [text, where] of fact.values)
    add(list, h("li", {}, h("span", { class: "value" }, text), h("bdi", { class: "where" }, where)));
  return [name(fact), list];
}
