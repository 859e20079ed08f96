// Hosts over time as colours. The cells are painted once into an image; zooming only draws a part of it.

import { isDark, ramp, theme, type Colour } from "./colour.ts";
import type { Cells } from "./decode.ts";
import { h, resized, visible } from "./dom.ts";
import { interact, LEFT, plotWidth } from "./interact.ts";
import { drawMarks } from "./marks.ts";
import type { Chart } from "./model.ts";
import type { View } from "./view.ts";

const ROW = 14; // pixels of a row that has room for its name
const SHORTEST_NAMED = 10;
const MOST = 230;

/** The height of the map of this many hosts. */
export function heightOf(rows: number): number {
  return Math.max(2 * ROW, Math.min(rows * ROW, Math.max(MOST, Math.min(320, rows))));
}

/** The rows that each line of the picture shows; several where there are more rows than lines. */
export function linesOf(rows: number[], most: number): number[][] {
  if (rows.length <= most) return rows.map((row) => [row]);
  return Array.from({ length: most }, (_, line) =>
    rows.slice(Math.floor((line * rows.length) / most), Math.floor(((line + 1) * rows.length) / most)),
  );
}

/** One colour for each cell; if a line shows several rows, the most important one. Row -1 has no cells. */
export function paint(
  cells: Cells,
  lines: number[][],
  limit: number,
  runsOut: boolean,
  colours: Colour[],
): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(4 * lines.length * cells.buckets);
  const plane = runsOut ? cells.low : cells.high;
  let at = 0;
  for (const rows of lines) {
    for (let bucket = 0; bucket < cells.buckets; bucket++, at += 4) {
      let heat = -1;
      for (const row of rows) {
        const value = row < 0 ? NaN : plane[row * cells.buckets + bucket]!;
        if (Number.isNaN(value)) continue;
        const share = Math.min(1, Math.max(0, value / limit));
        heat = Math.max(heat, runsOut ? 1 - share : share);
      }
      if (heat < 0) continue; // no data: stays transparent
      const [red, green, blue] = colours[Math.round(heat * 255)]!;
      pixels[at] = red;
      pixels[at + 1] = green;
      pixels[at + 2] = blue;
      pixels[at + 3] = 255;
    }
  }
  return pixels;
}

export class HeatMap {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { "aria-hidden": "true" });
  private readonly image = document.createElement("canvas");
  private readonly view: View;
  private readonly chart: Chart;
  private readonly cells: Cells;
  private readonly limit: number;
  private readonly place = new Map<number, number>();
  /** The hosts drawn, from top to bottom. */
  private hosts: number[] = [];

  constructor(view: View, chart: Chart, cells: Cells, limit: number) {
    [this.view, this.chart, this.cells, this.limit] = [view, chart, cells, limit];
    chart.hosts.forEach((host, row) => this.place.set(host, row));
    this.element = h("div", {
      class: "plot heat",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "heat map",
      "aria-label": `${chart.title} of every host over time. Arrow keys move the cursor, Enter opens the host.`,
    });
    this.element.append(this.canvas);
    interact(this.element, view, {
      hostAt: (y) => this.hostAt(y),
      click: (host) => host !== null && view.select(host),
      hosts: () => this.hosts,
    });
  }

  /** The row of a host's cells; null where it has none. */
  rowOf(host: number): number | null {
    return this.place.get(host) ?? null;
  }

  private hostAt(y: number): number | null {
    const height = heightOf(this.hosts.length);
    if (y < 0 || y >= height || this.hosts.length === 0) return null;
    return this.hosts[Math.floor((y / height) * this.hosts.length)] ?? null;
  }

  /** Paint the image again after the hosts or the theme changed. */
  repaint(): void {
    // A host without any sample keeps its row, so that missing data is visible.
    const silent = (host: number): boolean => !this.view.page.hosts[host]!.samples;
    this.hosts = this.view.hosts.filter((host) => this.place.has(host) || silent(host));
    const height = heightOf(this.hosts.length);
    const lines = linesOf(
      this.hosts.map((host) => this.place.get(host) ?? -1),
      Math.round(height * Math.min(2, devicePixelRatio)),
    );
    this.image.width = this.cells.buckets;
    this.image.height = Math.max(1, lines.length);
    if (lines.length > 0) {
      const pixels = paint(this.cells, lines, this.limit, this.chart.runs_out, ramp(isDark()));
      const picture = new ImageData(pixels, this.cells.buckets, lines.length);
      this.image.getContext("2d")!.putImageData(picture, 0, 0);
    }
    this.draw();
  }

  draw(): void {
    const width = plotWidth(this.element);
    const height = heightOf(this.hosts.length);
    const draw = resized(this.canvas, height);
    draw.imageSmoothingEnabled = false;
    const [from, to] = this.view.range.map((time) => (time - this.chart.start) / this.chart.bucket) as [
      number,
      number,
    ];
    draw.save();
    draw.beginPath();
    draw.rect(LEFT, 0, width, height);
    draw.clip();
    hatch(draw, width, height);
    const scale = width / (to - from);
    draw.drawImage(this.image, LEFT - from * scale, 0, this.cells.buckets * scale, height);
    draw.restore();
    this.names(draw, height);
    drawMarks(draw, this.view, width, 0, height);
  }

  private names(draw: CanvasRenderingContext2D, height: number): void {
    const each = height / Math.max(1, this.hosts.length);
    const every = Math.max(1, Math.ceil(SHORTEST_NAMED / each));
    draw.font = `11px ${theme("font")}`;
    draw.textAlign = "right";
    draw.textBaseline = "middle";
    const selected = this.view.selected === null ? -1 : this.hosts.indexOf(this.view.selected);
    this.hosts.forEach((host, at) => {
      const isSelected = at === selected;
      // The name of the selected host replaces those it would touch.
      if (!isSelected && (at % every !== 0 || (selected >= 0 && Math.abs(at - selected) < every))) return;
      draw.fillStyle = theme(isSelected ? "accent" : "muted");
      const y = Math.min(height - 5, Math.max(6, (at + 0.5) * each));
      draw.fillText(shorten(draw, this.view.page.hosts[host]!.name, LEFT - 12), LEFT - 6, y);
    });
    if (selected >= 0) {
      draw.strokeStyle = theme("accent");
      draw.lineWidth = 1.5;
      draw.strokeRect(LEFT, selected * each - 1, plotWidth(this.element), Math.max(3, each + 2));
    }
  }
}

/** What is seen where no cell is drawn. */
function hatch(draw: CanvasRenderingContext2D, width: number, height: number): void {
  draw.fillStyle = theme("absent");
  draw.fillRect(LEFT, 0, width, height);
  draw.strokeStyle = theme("absent-line");
  draw.beginPath();
  for (let x = LEFT - height; x < LEFT + width; x += 6) {
    draw.moveTo(x, height);
    draw.lineTo(x + height, 0);
  }
  draw.stroke();
}

/** The name, shortened to fit; control characters are shown as replacement characters. */
function shorten(draw: CanvasRenderingContext2D, name: string, width: number): string {
  let shown = visible(name);
  if (draw.measureText(shown).width <= width) return shown;
  while (shown.length > 1 && draw.measureText(`${shown}…`).width > width) shown = shown.slice(0, -1);
  return `${shown}…`;
}
