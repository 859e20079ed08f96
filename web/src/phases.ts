// Statistics of a metric in every phase of the run, over time and over hosts, and the slowest host.

import { add, button, h, scrolled, section, table } from "./dom.ts";
import { amount, clock, duration } from "./format.ts";
import type { Phase, PhaseValues } from "./model.ts";
import type { View } from "./view.ts";

const HEADINGS = [
  "Phase",
  "Start",
  "Duration",
  "Mean",
  "Median",
  "95th percentile",
  "Maximum",
  "Median of hosts",
  "Slowest host",
];

const HOSTS_FROM = HEADINGS.indexOf("Median of hosts");
const EXPLAINED =
  "Mean, median, 95th percentile (95 % of the samples are at or below it) and maximum are taken over all samples in the phase.";
const EXPLAINED_HOSTS =
  "The median of hosts is the median of the hosts' means; the slowest host has the lowest mean, or the highest if lower is better.";

/** The section; null if no phase has samples. */
export function phases(view: View): HTMLElement | null {
  const found = view.page.phases;
  const metrics = [...new Set(found.flatMap((phase) => phase.values.map((one) => one.metric)))];
  if (metrics.length === 0) return null;
  const many = view.page.hosts.length > 1;
  const holder = scrolled("Table of phases");
  const choice = h("select", { id: "phase-metric", "aria-label": "Metric of the table of phases" });
  for (const metric of metrics) add(choice, h("option", { value: metric }, metric));
  choice.value = changedMost(view, metrics);
  const draw = (): void => {
    const rows = found.map((phase) =>
      row(
        view,
        phase,
        phase.values.find((one) => one.metric === choice.value),
      ),
    );
    const shown = many ? rows : rows.map((cells) => cells.slice(0, HOSTS_FROM));
    holder.replaceChildren(table("Phases", many ? HEADINGS : HEADINGS.slice(0, HOSTS_FROM), shown));
  };
  choice.addEventListener("change", draw);
  draw();
  return section(
    "phases",
    "Phases",
    h("p", {}, choice),
    h("p", { class: "small" }, many ? `${EXPLAINED} ${EXPLAINED_HOSTS}` : EXPLAINED),
    holder,
  );
}

/** The metric whose mean differs most between phases, of those that moved; the first if none did. */
function changedMost(view: View, metrics: string[]): string {
  const moved = new Set((view.page.summary.metrics ?? []).map((one) => one.title));
  const change = (metric: string): number => {
    const means = view.page.phases
      .map((phase) => phase.values.find((one) => one.metric === metric)?.mean)
      .filter((mean): mean is number => typeof mean === "number");
    const [low, high] = [Math.min(...means), Math.max(...means)];
    return means.length < 2 || high <= 0 ? 0 : (high - low) / high;
  };
  const known = metrics.filter((metric) => moved.has(metric));
  return known.sort((one, other) => change(other) - change(one))[0] ?? metrics[0]!;
}

function row(view: View, phase: Phase, values: PhaseValues | undefined): (Node | string)[] {
  const shown = (value: number | null | undefined): string => amount(value, values?.unit ?? "");
  const slowest = view.page.hosts.findIndex((host) => host.name === values?.slowest);
  return [
    button(phase.name, { class: "link", title: "Zoom to this phase" }, () => view.zoom([phase.start, phase.end])),
    clock(phase.start),
    duration(phase.end - phase.start),
    shown(values?.mean),
    shown(values?.p50),
    shown(values?.p95),
    shown(values?.max),
    shown(values?.median_host),
    slowest < 0 ? "" : button(values!.slowest, { class: "link" }, () => view.select(slowest)),
  ];
}
