// Statistics of a metric in every phase of the run, over time and over hosts, and the slowest host.

import { add, button, h, table } from "./dom.ts";
import { amount, clock, duration } from "./format.ts";
import type { Phase, PhaseValues } from "./model.ts";
import type { View } from "./view.ts";

const HEADINGS = [
  "Phase",
  "From",
  "Lasted",
  "Mean",
  "Median",
  "95th percentile",
  "Maximum",
  "Median of hosts",
  "Slowest host",
];

/** The section; null if no phase has samples. */
export function phases(view: View): HTMLElement | null {
  const found = view.page.phases;
  const metrics = [...new Set(found.flatMap((phase) => phase.values.map((one) => one.metric)))];
  if (metrics.length === 0) return null;
  const holder = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of phases" });
  const choice = h("select", { id: "phase-metric", "aria-label": "Metric of the table of phases" });
  for (const metric of metrics) add(choice, h("option", { value: metric }, metric));
  const draw = (): void => {
    const rows = found.map((phase) =>
      row(
        view,
        phase,
        phase.values.find((one) => one.metric === choice.value),
      ),
    );
    holder.replaceChildren(table("Phases", HEADINGS, rows));
  };
  choice.addEventListener("change", draw);
  draw();
  return h(
    "section",
    { id: "phases", "aria-labelledby": "phases-title" },
    h("h2", { id: "phases-title" }, "Phases"),
    h("p", {}, choice),
    holder,
  );
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
