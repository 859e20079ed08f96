// The whole run on one line: phases, findings, missing data, and the range that the charts show.

import { theme } from "./colour.ts";
import { add, button, h, resized, visible } from "./dom.ts";
import { around } from "./findings.ts";
import { clock, count, duration, local, moment } from "./format.ts";
import { CLICK, LEFT, plotWidth, RIGHT, timeAt, xOf } from "./interact.ts";
import type { Mark } from "./model.ts";
import type { View } from "./view.ts";

const LANES: { kinds: Mark["kind"][]; label: string; colour: string; top: number; height: number }[] = [
  { kinds: ["command", "phase"], label: "run", colour: "mark-phase", top: 2, height: 14 },
  { kinds: ["outlier", "finding"], label: "findings", colour: "warn", top: 20, height: 8 },
  { kinds: ["gap", "reconnect", "reboot"], label: "no data", colour: "bad", top: 32, height: 8 },
];
const HEIGHT = 44;
const NEAR = 4; // pixels
const LISTED = 300;

export class TimeLine {
  readonly element: HTMLElement;
  private readonly view: View;
  private readonly canvas = h("canvas", { "aria-hidden": "true" });
  private readonly area = h("div", { class: "plot overview" }, this.canvas);
  private readonly text = h("span", { class: "range" });
  private readonly reset = button("Show all", { class: "quiet", title: "Show the whole run (key 0)" }, () =>
    this.view.zoom(this.view.whole),
  );

  constructor(view: View) {
    this.view = view;
    this.element = h(
      "div",
      { class: "timeline" },
      this.area,
      h("div", { class: "status" }, this.text, this.reset),
    );
    for (const topic of ["range", "theme", "selected"] as const) view.on(topic, () => this.draw());
    view.on("cursor", () => this.read());
    new ResizeObserver(() => this.draw()).observe(this.area);
    this.listen();
  }

  private listen(): void {
    let from: number | null = null;
    const x = (event: PointerEvent): number => event.clientX - this.area.getBoundingClientRect().left;
    const time = (at: number): number => timeAt(at, this.view.whole, plotWidth(this.area));
    this.area.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      from = x(event);
      this.area.setPointerCapture(event.pointerId);
    });
    this.area.addEventListener("pointermove", (event) => {
      this.view.point({ time: time(x(event)), host: null });
      const near = this.near(event);
      this.area.title = near
        .map((mark) => this.describe(mark))
        .slice(0, 8)
        .join("\n");
      if (from !== null && Math.abs(x(event) - from) >= CLICK)
        this.view.zoom([time(Math.min(from, x(event))), time(Math.max(from, x(event)))]);
    });
    this.area.addEventListener("pointerup", (event) => {
      const clicked = from !== null && Math.abs(x(event) - from) < CLICK;
      from = null;
      const mark = this.near(event)[0];
      if (clicked && mark) this.go(mark);
    });
    this.area.addEventListener("pointercancel", () => (from = null));
    this.area.addEventListener("pointerleave", () => this.view.point(null));
    this.area.addEventListener("dblclick", () => this.view.zoom(this.view.whole));
  }

  /** Show a mark with some time around it, and its host. */
  private go(mark: Mark): void {
    const isPhase = mark.kind === "command" || mark.kind === "phase";
    this.view.zoom(isPhase ? [mark.start, mark.end] : around(mark.start, mark.end));
    if (mark.host !== null) this.view.select(mark.host);
  }

  private near(event: PointerEvent): Mark[] {
    const box = this.area.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const lane = LANES.find((one) => y >= one.top - 2 && y <= one.top + one.height + 2);
    const place = (at: number): number => xOf(at, this.view.whole, plotWidth(this.area));
    return this.view.page.marks
      .filter((mark) => lane?.kinds.includes(mark.kind))
      .filter((mark) => x >= place(mark.start) - NEAR && x <= place(mark.end) + NEAR)
      .sort((one, other) => one.end - one.start - (other.end - other.start));
  }

  private describe(mark: Mark): string {
    const host = mark.host === null ? "" : `${this.view.page.hosts[mark.host]!.name}: `;
    const when =
      mark.end > mark.start ? `${clock(mark.start)}–${clock(mark.end)} UTC` : `${clock(mark.start)} UTC`;
    return visible(mark.kind === "outlier" ? mark.text : `${host}${mark.text}, ${when}`);
  }

  /** All marks as text, to read and to jump to. */
  list(): HTMLElement {
    const { marks } = this.view.page;
    const list = h("ul", {});
    for (const mark of marks.slice(0, LISTED)) {
      add(
        list,
        h(
          "li",
          {},
          button(this.describe(mark), { class: "link", title: local(mark.start) }, () => this.go(mark)),
        ),
      );
    }
    if (marks.length > LISTED) add(list, h("li", {}, `and ${marks.length - LISTED} more`));
    if (marks.length === 0) add(list, h("li", {}, "No phases, findings or gaps."));
    return h(
      "article",
      { class: "card moments", "aria-label": "Events in the run" },
      h("h3", {}, `${count(marks.length, "event")} in the run`),
      list,
    );
  }

  private read(): void {
    const [start, end] = this.view.range;
    const at = this.view.cursor?.time;
    const shown = `${clock(start)}–${clock(end)} UTC · ${duration(end - start)}`;
    this.text.textContent = at === undefined ? shown : `${clock(at)} UTC`;
    this.text.title =
      at === undefined ? `${moment(start)} to ${moment(end)}\n${local(start)} to ${local(end)}` : local(at);
    this.reset.hidden = !this.view.zoomed;
  }

  draw(): void {
    const width = plotWidth(this.area);
    const draw = resized(this.canvas, HEIGHT);
    draw.font = `11px ${theme("font")}`;
    draw.textBaseline = "middle";
    const place = (at: number): number => xOf(at, this.view.whole, width);
    for (const lane of LANES) {
      draw.textAlign = "right";
      draw.fillStyle = theme("muted");
      draw.fillText(lane.label, LEFT - 6, lane.top + lane.height / 2);
      draw.fillStyle = theme("lane");
      draw.fillRect(LEFT, lane.top, width, lane.height);
      for (const mark of this.view.page.marks)
        if (lane.kinds.includes(mark.kind)) this.bar(draw, lane, mark, place);
    }
    if (this.view.zoomed) {
      draw.fillStyle = theme("veil");
      const [left, right] = [place(this.view.range[0]), place(this.view.range[1])];
      draw.fillRect(LEFT, 0, left - LEFT, HEIGHT);
      draw.fillRect(right, 0, this.area.clientWidth - RIGHT - right, HEIGHT);
      draw.strokeStyle = theme("accent");
      draw.strokeRect(left, 0.5, right - left, HEIGHT - 1);
    }
    this.read();
  }

  private bar(
    draw: CanvasRenderingContext2D,
    lane: (typeof LANES)[number],
    mark: Mark,
    place: (at: number) => number,
  ): void {
    const [left, right] = [place(mark.start), place(mark.end)];
    const chosen = mark.host !== null && mark.host === this.view.selected;
    const command = mark.kind === "command";
    draw.fillStyle = theme(
      chosen ? "accent" : command ? "lane-command" : mark.kind === "phase" ? "lane-phase" : lane.colour,
    );
    draw.globalAlpha = chosen || lane.top === 2 ? 1 : 0.75;
    draw.fillRect(left, lane.top, Math.max(2, right - left), lane.height);
    draw.globalAlpha = 1;
    if (lane.top !== 2) return;
    draw.strokeStyle = theme("surface");
    draw.strokeRect(left, lane.top, right - left, lane.height);
    draw.save();
    draw.beginPath();
    draw.rect(left + 3, lane.top, Math.max(0, right - left - 6), lane.height);
    draw.clip();
    draw.textAlign = "left";
    draw.fillStyle = theme("ink");
    draw.fillText(visible(mark.text), left + 4, lane.top + lane.height / 2);
    draw.restore();
  }
}
