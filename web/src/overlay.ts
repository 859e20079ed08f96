// The same metric of several runs, on one axis of seconds since the start of each run or of one of its phases.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { axisStyle, valueAxis, type Values } from "./axes.ts";
import { theme } from "./colour.ts";
import { h } from "./dom.ts";
import { number } from "./format.ts";

const HEIGHT = 190;

/** Values moved by whole buckets, to align runs with each other. */
export function shifted(values: Values, by: number, length: number): Values {
  return Array.from({ length }, (_, at) => values[at - by] ?? null);
}

export class Overlay {
  readonly element: HTMLElement;
  private readonly unit: string;
  private readonly colours: () => string[];
  private plot: uPlot | null = null;

  /** `colours` gives the colour of each line, in the current theme. */
  constructor(label: string, unit: string, colours: () => string[]) {
    [this.unit, this.colours] = [unit, colours];
    this.element = h("div", { class: "plot lines", role: "img", "aria-label": label });
    this.element.style.height = `${HEIGHT}px`;
    new ResizeObserver(() => this.plot?.setSize({ width: this.element.clientWidth, height: HEIGHT })).observe(
      this.element,
    );
  }

  show(seconds: number[], lines: Values[]): void {
    this.plot?.destroy();
    this.plot = new uPlot(this.options(), [seconds, ...lines], this.element);
  }

  private options(): uPlot.Options {
    const colours = this.colours();
    const mark = theme("mark-phase");
    return {
      width: Math.max(this.element.clientWidth, 200),
      height: HEIGHT,
      padding: [6, 12, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: false },
        y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) > 0 ? high! * 1.05 : 1] },
      },
      axes: [
        { ...axisStyle(), size: 22, gap: 4, values: (_, times) => times.map((time) => `${number(time)} s`) },
        valueAxis(this.unit, 76, 26),
      ],
      hooks: { drawAxes: [(plot) => markZero(plot, mark)] },
      // A short run may have a single sample: without a point it would be invisible.
      series: [
        {},
        ...colours.map((stroke) => ({ stroke, width: 1.25, points: { show: true, size: 3, fill: stroke } })),
      ],
    };
  }
}

/** A line where the runs are aligned, unless that is the edge of the chart. */
function markZero(plot: uPlot, stroke: string): void {
  if ((plot.scales["x"]?.min ?? 0) >= 0) return;
  const at = plot.valToPos(0, "x", true);
  plot.ctx.save();
  plot.ctx.strokeStyle = stroke;
  plot.ctx.lineWidth = devicePixelRatio;
  plot.ctx.beginPath();
  plot.ctx.moveTo(at, plot.bbox.top);
  plot.ctx.lineTo(at, plot.bbox.top + plot.bbox.height);
  plot.ctx.stroke();
  plot.ctx.restore();
}
