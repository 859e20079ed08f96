// One metric: hosts over time as a heat map, below it the distribution over all hosts and the selected host.

import { isDark, ramp } from "./colour.ts";
import { decode, type Cells } from "./decode.ts";
import { h } from "./dom.ts";
import { amount, clock, count, duration, local } from "./format.ts";
import { HeatMap, heightOf } from "./heatmap.ts";
import type { Values } from "./axes.ts";
import { Lines, type Line } from "./lines.ts";
import type { Chart, Devices } from "./model.ts";
import { bands, top, type Bands } from "./stats.ts";
import type { View } from "./view.ts";

const BANDS_HEIGHT = 112;
const decoded = new WeakMap<Chart | Devices, Promise<Cells>>();

/** The cells of a chart, decoded once. */
export function cellsOf(chart: Chart | Devices): Promise<Cells> {
  const known = decoded.get(chart) ?? decode(chart.packed);
  decoded.set(chart, known);
  return known;
}

/** The middle of each bucket. */
export function timesOf(chart: Chart | Devices): number[] {
  return Array.from({ length: chart.packed.buckets }, (_, at) => chart.start + (at + 0.5) * chart.bucket);
}

/** One row of cells as a line; absent cells are gaps. */
export function lineOf(plane: Float32Array, cells: Cells, row: number): Values {
  return Array.from(plane.subarray(row * cells.buckets, (row + 1) * cells.buckets), (value) =>
    Number.isNaN(value) ? null : value,
  );
}

export class ChartCard {
  readonly element: HTMLElement;
  private readonly view: View;
  private readonly chart: Chart;
  private readonly readout = h("p", { class: "readout", "aria-live": "off" });
  private readonly body = h("div");
  private readonly key = h("p", { class: "key" });
  private heat: HeatMap | null = null;
  private lines: Lines | null = null;
  private cells: Cells | null = null;
  private bands: Bands | null = null;
  private begun: Promise<void> | null = null;
  private visible = false;
  private stale = false;

  constructor(view: View, chart: Chart) {
    [this.view, this.chart] = [view, chart];
    this.element = h(
      "article",
      { class: "card chart", id: `chart-${chart.id}`, "aria-labelledby": `title-${chart.id}` },
      h(
        "header",
        {},
        h(
          "h3",
          { id: `title-${chart.id}`, title: chart.description },
          h("a", { href: `#metric=${chart.id}` }, chart.title),
        ),
        this.readout,
      ),
      this.body,
      this.key,
    );
    // Reserve the height of the drawing, so that nothing below moves.
    this.body.style.minHeight = `${(this.alone ? 0 : heightOf(chart.hosts.length)) + BANDS_HEIGHT}px`;
    this.resting();
    view.on("cursor", () => this.visible && this.read());
    view.on("range", () => this.refresh(() => this.draw()));
    for (const topic of ["hosts", "theme", "selected"] as const)
      view.on(topic, () => this.refresh(() => this.repaint()));
  }

  /** Whether the chart has one host only. */
  private get alone(): boolean {
    return this.chart.hosts.length === 1;
  }

  /** Draw when the chart is first visible; redraw only while it is. */
  seen(visible: boolean): void {
    this.visible = visible;
    if (!visible) return;
    if (!this.begun) void this.begin();
    else if (this.stale) this.repaint();
  }

  /** Draw once; resolves when the chart is drawn. */
  begin(): Promise<void> {
    return (this.begun ??= this.first());
  }

  private async first(): Promise<void> {
    const { view, chart } = this;
    this.cells = await cellsOf(chart);
    const limit = chart.ceiling ?? top(chart.runs_out ? this.cells.low : this.cells.high);
    this.heat = new HeatMap(view, chart, this.cells, limit);
    this.lines = new Lines(view, this.label(), chart.unit, chart.ceiling, BANDS_HEIGHT);
    // A heat map of one host says nothing that its line does not.
    this.body.replaceChildren(...(this.alone ? [] : [this.heat.element]), this.lines.element);
    this.key.replaceChildren(...this.legend(limit));
    new ResizeObserver(() => this.fit()).observe(this.body);
    this.repaint();
  }

  /** Draw again for a window or paper of another size. */
  fit(): void {
    this.heat?.draw();
    this.lines?.resize();
  }

  private refresh(draw: () => void): void {
    if (!this.begun) return;
    if (this.visible) draw();
    else this.stale = true;
  }

  private draw(): void {
    this.heat?.draw();
    this.lines?.draw();
  }

  repaint(): void {
    if (!this.cells || !this.heat || !this.lines) return;
    this.stale = false;
    this.heat.repaint();
    const rows = this.view.hosts.map((host) => this.heat!.rowOf(host)).filter((row) => row !== null);
    this.bands = bands(this.cells, rows);
    if (this.alone) {
      this.single();
      return;
    }
    const { max, p95, median, min } = this.bands;
    const lines: Line[] = [
      { values: max, colour: "band-edge", width: 0.75 },
      { values: p95, colour: "band-edge", width: 0.75 },
      { values: median, colour: "median", width: 1.5 },
      { values: min, colour: "band-edge", width: 0.75 },
    ];
    const selected = this.selectedRow();
    if (selected !== null)
      lines.push({ values: lineOf(this.cells.mean, this.cells, selected), colour: "accent", width: 1.75 });
    const areas = [
      { upper: 0, lower: 3, colour: "band" },
      { upper: 1, lower: 2, colour: "band-inner" },
    ];
    this.lines.show(timesOf(this.chart), lines, areas);
    this.read();
  }

  /** One host: its mean, and what lies between minimum and maximum of a cell. */
  private single(): void {
    const cells = this.cells!;
    const lines: Line[] = [
      { values: lineOf(cells.high, cells, 0), colour: "band-edge", width: 0.75 },
      { values: lineOf(cells.low, cells, 0), colour: "band-edge", width: 0.75 },
      { values: lineOf(cells.mean, cells, 0), colour: "median", width: 1.5 },
    ];
    const spread = this.chart.beats > 1;
    this.lines!.show(
      timesOf(this.chart),
      spread ? lines : lines.slice(2),
      spread ? [{ upper: 0, lower: 1, colour: "band" }] : [],
    );
    this.read();
  }

  private selectedRow(): number | null {
    return this.view.selected === null ? null : (this.heat?.rowOf(this.view.selected) ?? null);
  }

  private read(): void {
    const { chart } = this;
    const { cursor } = this.view;
    if (!cursor || !this.cells || !this.bands) return this.resting();
    const bucket = Math.floor((cursor.time - chart.start) / chart.bucket);
    if (bucket < 0 || bucket >= this.cells.buckets) return this.resting();
    const host = cursor.host ?? this.view.selected;
    const row = host === null ? null : (this.heat?.rowOf(host) ?? null);
    const show = (value: number | null | undefined): string => amount(value, chart.unit);
    const middle = clock(chart.start + (bucket + 0.5) * chart.bucket);
    const time = h("time", { title: local(cursor.time) }, `${middle} UTC`);
    if (this.alone) {
      const most = chart.beats > 1 ? [h("span", {}, `max ${show(this.cells.high[bucket])}`)] : [];
      this.readout.replaceChildren(time, h("span", {}, show(this.cells.mean[bucket])), ...most);
      return;
    }
    const parts = [
      time,
      h("span", {}, `median ${show(this.bands.median[bucket])}`),
      h("span", {}, `p95 ${show(this.bands.p95[bucket])}`),
      h("span", {}, `max ${show(this.bands.max[bucket])}`),
    ];
    if (host !== null && row !== null) {
      const at = row * this.cells.buckets + bucket;
      const plane = chart.runs_out ? this.cells.low : this.cells.high;
      const gap = this.view.page.hosts[host]!.gaps.find(
        (one) => one.start <= cursor.time && cursor.time <= one.end,
      );
      const value = Number.isNaN(plane[at]!) && gap ? `no data: ${gap.why}` : show(plane[at]);
      parts.splice(1, 0, h("b", {}, `${this.view.page.hosts[host]!.name} ${value}`));
    }
    this.readout.replaceChildren(...parts);
  }

  /** The text while no cursor is over the chart. */
  private resting(): void {
    this.readout.replaceChildren(h("span", {}, this.chart.description));
  }

  private label(): string {
    const known = Float64Array.from(this.cells!.mean.filter((value) => !Number.isNaN(value))).sort();
    const middle = known.length ? known[known.length >> 1] : null;
    const most = this.cells!.high.reduce<number | null>(
      (most, value) => (Number.isNaN(value) || (most !== null && most >= value) ? most : value),
      null,
    );
    const { title, unit, hosts } = this.chart;
    return `${title}, ${count(hosts.length, "host")}: median ${amount(middle, unit)}, maximum ${amount(most, unit)}.`;
  }

  private legend(limit: number): HTMLElement[] {
    const { chart } = this;
    if (this.alone) {
      const mean = h(
        "span",
        { class: "swatch median" },
        chart.beats > 1 ? `mean of ${duration(chart.bucket)}` : "every sample",
      );
      return chart.beats > 1 ? [mean, h("span", { class: "swatch outer" }, "min–max")] : [mean];
    }
    const bar = h("canvas", { class: "ramp", width: 96, height: 8, "aria-hidden": "true" });
    const paint = (): void => {
      const draw = bar.getContext("2d")!;
      ramp(isDark()).forEach((colour, at) => {
        draw.fillStyle = `rgb(${colour.join(" ")})`;
        draw.fillRect((at / 256) * 96, 0, 1, 8);
      });
    };
    paint();
    this.view.on("theme", paint);
    const ends = [amount(0, chart.unit), amount(limit, chart.unit)];
    if (chart.runs_out) ends.reverse();
    const which = chart.runs_out ? "minimum" : "maximum";
    const cell =
      chart.beats > 1
        ? `cell: ${which} of ${chart.beats} samples (${duration(chart.bucket)})`
        : "cell: one sample";
    return [
      h("span", { class: "scale" }, ends[0], bar, ends[1]),
      h("span", {}, cell),
      h("span", { class: "swatch median" }, "median"),
      h("span", { class: "swatch inner" }, "p95"),
      h("span", { class: "swatch outer" }, "min–max"),
      h("span", { class: "swatch gone" }, "no data"),
    ];
  }
}
