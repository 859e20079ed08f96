// What all line charts share: the type of their values, and the style and steps of their axes.

import type uPlot from "uplot";
import { theme } from "./colour.ts";
import { amount } from "./format.ts";

export type Values = (number | null)[];

/** Steps of an axis of bytes: powers of two. */
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** The style of both axes, in the current theme. */
export function axisStyle(): uPlot.Axis {
  const grid = { stroke: theme("grid"), width: 1 };
  return { stroke: theme("muted"), font: `11px ${theme("font")}`, grid, ticks: { show: false } };
}

/** The axis of values: `size` and `space` are pixels. */
export function valueAxis(unit: string, size: number, space: number): uPlot.Axis {
  return {
    ...axisStyle(),
    size,
    gap: 6,
    space,
    ...(unit.startsWith("B") ? { incrs: BINARY } : {}),
    values: (_, values) => values.map((value) => amount(value, unit)),
  };
}
