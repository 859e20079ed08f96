// Builds the page of a comparison from the document inside it.

import type { Values } from "./axes.ts";
import { isDark, lineColour, theme } from "./colour.ts";
import { add, byId, h, list, table } from "./dom.ts";
import { moment } from "./format.ts";
import { Overlay, shifted } from "./overlay.ts";
import { followSystemTheme } from "./toolbar.ts";
import "./style/theme.css";
import "./style/base.css";
import "./style/summary.css";
import "./style/charts.css";
import "./style/lists.css";
import "./style/media.css";
import "./style/compare.css";

interface Run {
  side: number;
  label: string;
  phases: Record<string, number>;
}

interface Row {
  kind: string;
  title: string;
  cells: string[];
  verdict: string;
}

interface Page {
  title: string;
  created: number;
  sides: string[];
  runs: Run[];
  bucket: number;
  alignments: string[];
  tables: { side: number; headline: string; verdict: string; rows: Row[]; facts: string[] }[];
  charts: { id: string; title: string; unit: string; changes: string[]; lines: Values[] }[];
  notes: string[];
}

function start(): void {
  followSystemTheme(() => draw());
  const page = JSON.parse(byId("data").textContent ?? "") as Page;
  document.title = `${page.title} · Rollbook`;
  const main = h("main", { id: "main" }, h("h1", {}, `Comparison of ${page.title}`), legend(page));
  for (const one of page.tables) add(main, h("p", { class: `headline ${classOf(one.verdict)}` }, one.headline));
  for (const note of page.notes) add(main, h("p", { class: "note" }, note));
  for (const one of page.tables) add(main, ...sideBySide(page, one));
  const draw = charts(page, main);
  add(main, h("p", { class: "note" }, `Written ${moment(page.created)}.`));
  byId("page").replaceChildren(main);
  draw();
}

function classOf(verdict: string): string {
  return verdict.replace(" ", "-");
}

function legend(page: Page): HTMLElement {
  const sides = h("ul", { class: "sides" });
  page.sides.forEach((side, at) => {
    const mark = h("span", { class: "mark", "aria-hidden": "true" });
    mark.style.background = `var(--${lineColour(at)})`;
    add(sides, h("li", {}, mark, side));
  });
  return sides;
}

function sideBySide(page: Page, one: Page["tables"][number]): HTMLElement[] {
  const [first, other] = ["A", String.fromCharCode(65 + one.side)];
  const headings = ["Value", first, other, `${other} vs ${first}`, "95 % interval", "Verdict"];
  const rows = (kinds: string[]): HTMLElement => {
    const chosen = one.rows.filter((row) => kinds.includes(row.kind));
    const cells = chosen.map((row) => [
      row.title,
      ...row.cells.slice(0, -1),
      h("span", { class: `judged ${classOf(row.verdict)}` }, row.cells.at(-1)),
    ]);
    const sheet = table(`${other} against ${first}`, headings, cells);
    sheet.classList.add("sheet");
    for (const line of sheet.tBodies[0]!.rows)
      [...line.cells].forEach((cell, at) => (cell.dataset["heading"] = headings[at]!));
    return h("div", { class: "scroll" }, sheet);
  };
  return [
    h("h2", {}, `${page.sides[one.side]} against ${page.sides[0]}`),
    rows(["result", "phase"]),
    h("h3", {}, "Changed facts, most likely explanation first"),
    list(one.facts, { class: "facts" }),
    h("details", {}, h("summary", {}, "All metrics"), rows(["metric", "host"])),
  ];
}

/** Add the charts; returns the function that draws them. */
function charts(page: Page, main: HTMLElement): () => void {
  if (!page.charts.length) {
    add(main, h("p", {}, "The runs have no metrics in common, so there are no charts."));
    return () => undefined;
  }
  const choice = h("select", { id: "align" });
  for (const name of page.alignments) add(choice, h("option", { value: name }, name));
  const stored = new URLSearchParams(location.hash.slice(1)).get("align");
  if (stored && page.alignments.includes(stored)) choice.value = stored;
  const colours = (): string[] => page.runs.map((run) => theme(lineColour(run.side)));
  const drawn = page.charts.map((chart) => new Overlay(`${chart.title}, all runs`, chart.unit, colours));
  const grid = h("section", { class: "overlays", "aria-label": "Charts" });
  page.charts.forEach((chart, at) => {
    const card = h("article", { class: "card", id: `chart-${chart.id}` }, h("h3", {}, chart.title));
    for (const change of chart.changes) add(card, h("p", { class: "note" }, change));
    add(card, drawn[at]!.element);
    add(grid, card);
  });
  add(
    main,
    h("h2", {}, "Runs over time"),
    h("p", {}, h("label", { for: "align" }, "Aligned at the "), choice),
    grid,
  );
  const draw = (): void => {
    const offsets = page.runs.map((run) => Math.round((run.phases[choice.value] ?? 0) / page.bucket));
    const zero = Math.max(...offsets);
    const length = Math.max(
      ...page.charts[0]!.lines.map((line, at) => line.length + zero - (offsets[at] ?? 0)),
      2,
    );
    const seconds = Array.from({ length }, (_, at) => (at - zero) * page.bucket);
    page.charts.forEach((chart, at) =>
      drawn[at]!.show(
        seconds,
        chart.lines.map((line, run) => shifted(line, zero - (offsets[run] ?? 0), length)),
      ),
    );
    document.documentElement.dataset["drawn"] = `${choice.value} ${isDark() ? "dark" : "light"}`;
  };
  choice.addEventListener("change", () => {
    history.replaceState(null, "", `#align=${encodeURIComponent(choice.value)}`);
    draw();
  });
  return draw;
}

start();
