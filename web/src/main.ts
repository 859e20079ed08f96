// Builds the page from the document inside it.

import { ChartCard } from "./chart.ts";
import { isDark, setDark } from "./colour.ts";
import { add, byId, h, list, section } from "./dom.ts";
import { facts } from "./facts.ts";
import { findings, headlines } from "./findings.ts";
import { local, moment, ofAll } from "./format.ts";
import { HostPanel } from "./host.ts";
import { issueReport } from "./issue_report.ts";
import { hosts } from "./hosts.ts";
import type { Chart, Page } from "./model.ts";
import { phases } from "./phases.ts";
import { summary } from "./summary.ts";
import { TimeLine } from "./timeline.ts";
import { followSystemTheme, toolbar } from "./toolbar.ts";
import { View } from "./view.ts";
import "./style/theme.css";
import "./style/base.css";
import "./style/summary.css";
import "./style/charts.css";
import "./style/lists.css";
import "./style/media.css";

const AHEAD = "400px"; // charts are drawn when they are this close to the window

function start(): void {
  followSystemTheme(() => view.notify("theme"));
  const page = JSON.parse(byId("data").textContent ?? "") as Page;
  const view = new View(page);
  const drawn = [...page.charts].sort((one, other) => (one.highlight ?? Infinity) - (other.highlight ?? Infinity));
  const cards = drawn.map((chart) => new ChartCard(view, chart));
  const timeline = new TimeLine(view);
  const panel = new HostPanel(view);
  const main = h("main", { id: "main" }, summary(view), headlines(view));
  add(
    main,
    issueReport(view),
    ...charts(drawn, cards, timeline),
    phases(view),
    findings(view),
    ...(page.hosts.length ? [hosts(view), facts(page)] : []),
    about(page),
  );
  document.title = `${page.title} · Rollbook`;
  const bar = toolbar(page.title, sections(page), () => view.notify("theme"), ...hostTools(view, page));
  const top = h("div", { class: "top" }, bar, cards.length > 0 && timeline.element);
  byId("page").replaceChildren(top, main, panel.element);
  timeline.draw();
  address(view);
  watch(cards);
  ahead(cards);
  keys(view);
  paper(view, cards);
}

/** Keep zoom, host and metric in the address, so that a link or a reload shows the same. */
function address(view: View): void {
  let writing = false;
  const write = (): void => {
    if (writing) return;
    writing = true;
    requestAnimationFrame(() => {
      writing = false;
      history.replaceState(null, "", view.address ? `#${view.address}` : location.pathname + location.search);
    });
  };
  const scroll = (): void => {
    document.getElementById(`chart-${view.metric}`)?.scrollIntoView({ block: "center" });
    write();
  };
  view.on("metric", scroll);
  for (const topic of ["range", "selected"] as const) view.on(topic, write);
  addEventListener("hashchange", () => view.follow(location.hash.slice(1)));
  view.follow(location.hash.slice(1));
}

/** The sections that the page has, by id. */
function sections(page: Page): Record<string, string> {
  return {
    ...(page.charts.length ? { charts: "Charts" } : {}),
    ...(page.phases.length ? { phases: "Phases" } : {}),
    findings: "Findings",
    ...(page.hosts.length ? { hosts: "Hosts", facts: "Facts" } : {}),
  };
}

/** Filter and order of hosts; nothing for a single host. */
function hostTools(view: View, page: Page): HTMLElement[] {
  if (page.hosts.length <= 1) return [];
  const filter = h("input", {
    type: "search",
    id: "filter",
    placeholder: "Filter hosts",
    "aria-label": "Filter hosts by name; * stands for anything",
    title: "Parts of the name, or a pattern such as node1*. Key /",
    spellcheck: "false",
    autocomplete: "off",
  });
  filter.addEventListener("input", () => view.choose({ filter: filter.value }));
  const found = h("output", { class: "small", for: "filter" });
  const update = (): void => {
    found.textContent = ofAll(view.hosts.length, page.hosts.length, "host");
  };
  view.on("hosts", update);
  update();
  const order = h("select", { "aria-label": "Order of hosts", title: "Order of hosts" });
  add(order, h("option", { value: "name" }, "by name"), h("option", { value: "unusual" }, "most unusual first"));
  order.addEventListener("change", () => view.choose({ order: order.value === "unusual" ? "unusual" : "name" }));
  return [filter, found, order];
}

function charts(drawn: Chart[], cards: ChartCard[], timeline: TimeLine): HTMLElement[] {
  if (cards.length === 0) return [];
  const first = h("div", { class: "grid" });
  const rest = h("div", { class: "grid" });
  drawn.forEach((chart, at) => add(chart.highlight === null ? rest : first, cards[at]!.element));
  add(first, timeline.list());
  const help =
    drawn[0]!.hosts.length > 1
      ? "Drag to zoom, double-click to reset, click a row to open its host."
      : "Drag to zoom, double-click to reset.";
  const highlights = section("charts", "Highlights", first);
  add(highlights.firstElementChild!, h("span", { class: "help" }, help));
  return rest.childElementCount ? [highlights, section("more", "Other charts", rest)] : [highlights];
}

function watch(cards: ChartCard[]): void {
  const byElement = new Map(cards.map((card) => [card.element as Element, card]));
  const observer = new IntersectionObserver(
    (entries) => entries.forEach((entry) => byElement.get(entry.target)?.seen(entry.isIntersecting)),
    { rootMargin: AHEAD },
  );
  cards.forEach((card) => observer.observe(card.element));
}

/** Draw the other charts while the browser is idle, one at a time: printing shows all of them. */
function ahead(cards: ChartCard[]): void {
  const [next, ...rest] = cards;
  const begin = (): void => void next?.begin().then(() => ahead(rest));
  if ("requestIdleCallback" in window) requestIdleCallback(begin);
  else setTimeout(begin, 100);
}

function keys(view: View): void {
  const acts: Record<string, () => void> = {
    "/": () => document.getElementById("filter")?.focus(),
    "0": () => view.zoom(view.whole),
    "+": () => view.scale(0.5),
    "=": () => view.scale(0.5),
    "-": () => view.scale(2),
    "[": () => view.pan(-0.25),
    "]": () => view.pan(0.25),
    j: () => view.step(1),
    k: () => view.step(-1),
    Escape: () => view.select(null),
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (typing && event.key === "Escape") (event.target as HTMLElement).blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

/** For printing, draw everything, unfolded and in light colours. */
function paper(view: View, cards: ChartCard[]): void {
  addEventListener("beforeprint", () => {
    const dark = isDark();
    setDark(false);
    document.querySelectorAll<HTMLDetailsElement>("details.finding").forEach((one) => (one.open = true));
    view.notify("theme");
    cards.forEach((card) => card.repaint()); // those out of sight too
    addEventListener(
      "afterprint",
      () => {
        setDark(dark);
        view.notify("theme");
      },
      { once: true },
    );
  });
}

function about(page: Page): HTMLElement {
  const many = page.hosts.length > 1;
  const zoom = [
    ["+ −", "zoom in and out"],
    ["[ ]", "earlier, later"],
    ["0", "show the whole run"],
  ];
  const peers = [
    ["/", "filter hosts"],
    ["j k", "next host, previous host"],
    ["← → ↑ ↓ ⏎", "in a heat map: move the cursor, open the host"],
  ];
  const close = [["Esc", "close the host"]];
  const rows = [...(many ? peers : []), ...(page.charts.length ? zoom : []), ...(page.hosts.length ? close : [])];
  const keys = h("dl", { class: "keys" });
  for (const [key, does] of rows) add(keys, h("dt", {}, h("kbd", {}, key!)), h("dd", {}, does!));
  return section(
    "about",
    "About this page",
    list(page.notes),
    keys,
    h(
      "p",
      { class: "small", title: local(page.created) },
      `Generated by Rollbook ${page.rollbook}, ${moment(page.created)}. It loads nothing from the network.`,
    ),
  );
}

start();
