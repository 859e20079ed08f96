// Lines over time, drawn by uPlot. Only this file and overlay.ts use uPlot.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { axisStyle, valueAxis, type Values } from "./axes.ts";
import { theme } from "./colour.ts";
import { h } from "./dom.ts";
import { ticks } from "./format.ts";
import { interact, LEFT, plotWidth, RIGHT } from "./interact.ts";
import { drawMarks } from "./marks.ts";
import type { View } from "./view.ts";

export interface Line {
  values: Values;
  /** The name of a colour of the style sheet. */
  colour: string;
  width?: number;
  dash?: number[];
}

/** A filled area between two lines, given by their indices. */
interface Area {
  upper: number;
  lower: number;
  colour: string;
}

const AXIS = 22;
const POINT = 5; // pixels
const FEW = 12; // samples that are all shown as points

export class Lines {
  readonly element: HTMLElement;
  private readonly view: View;
  private readonly unit: string;
  private readonly ceiling: number | null;
  private readonly height: number;
  private readonly unsubscribe: () => void;
  private plot: uPlot | null = null;

  constructor(view: View, label: string, unit: string, ceiling: number | null, height: number) {
    [this.view, this.unit, this.ceiling, this.height] = [view, unit, ceiling, height];
    this.element = h("div", { class: "plot lines", role: "img", "aria-label": label });
    this.element.style.height = `${height}px`;
    this.unsubscribe = interact(this.element, view);
  }

  /** Draw these lines instead of the previous ones. */
  show(times: number[], lines: Line[], areas: Area[] = []): void {
    this.plot?.destroy();
    this.plot = new uPlot(this.options(lines, areas), [times, ...lines.map((line) => line.values)], this.element);
  }

  /** Draw the current time range. */
  draw(): void {
    this.plot?.setScale("x", { min: this.view.range[0], max: this.view.range[1] });
  }

  resize(): void {
    this.plot?.setSize({ width: this.element.clientWidth, height: this.height });
  }

  destroy(): void {
    this.unsubscribe();
    this.plot?.destroy();
  }

  private options(lines: Line[], areas: Area[]): uPlot.Options {
    return {
      width: this.element.clientWidth,
      height: this.height,
      ms: 1,
      tzDate: (time) => uPlot.tzDate(new Date(time), "Etc/UTC"),
      padding: [6, RIGHT, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: true, range: () => this.view.range },
        y: { range: (_, low, high) => this.span(low, high) },
      },
      axes: [
        { ...axisStyle(), size: AXIS, gap: 4, space: 96, values: (_, times, __, ___, step) => ticks(times, step) },
        valueAxis(this.unit, LEFT, 20),
      ],
      series: [
        {},
        ...lines.map((line) => ({
          stroke: theme(line.colour),
          width: line.width ?? 1.25,
          ...(line.dash ? { dash: line.dash } : {}),
          // A sample without neighbours has no line: show it as a point.
          points: { show: true, size: POINT, width: 0, fill: theme(line.colour), filter: isolated },
        })),
      ],
      bands: areas.map((area) => ({ series: [area.upper + 1, area.lower + 1], fill: theme(area.colour) })),
      hooks: { draw: [(plot) => this.marks(plot)] },
    };
  }

  private span(low: number | null, high: number | null): [number, number] {
    const least = Math.min(0, low ?? 0);
    return [least, this.ceiling ?? ((high ?? 0) > least ? high! * 1.05 : least + 1)];
  }

  private marks(plot: uPlot): void {
    const ratio = devicePixelRatio;
    plot.ctx.save();
    plot.ctx.scale(ratio, ratio);
    drawMarks(plot.ctx, this.view, plotWidth(this.element), 6, this.height - AXIS);
    plot.ctx.restore();
  }
}

/** The indices of values without a neighbour; of all values if there are few. */
function isolated(plot: uPlot, series: number): number[] {
  const values = plot.data[series] as Values;
  const known = values.flatMap((value, at) => (value === null ? [] : [at]));
  if (known.length <= FEW) return known;
  return known.filter((at) => (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null);
}
