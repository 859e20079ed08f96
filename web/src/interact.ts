// Pointer and keys over a chart: cursor, drag to zoom, click, double-click to reset. The same for every chart.

import { h } from "./dom.ts";
import type { View } from "./view.ts";

/** Space left and right of every chart for names and numbers; equal, so that the time axes are aligned. */
export const LEFT = 96;
export const RIGHT = 20;

/** Pixels; a pointer that moved less was clicked, not dragged. */
export const CLICK = 4;

export function plotWidth(area: HTMLElement): number {
  return Math.max(1, area.clientWidth - LEFT - RIGHT);
}

export function xOf(time: number, range: [number, number], width: number): number {
  return LEFT + ((time - range[0]) / (range[1] - range[0])) * width;
}

export function timeAt(x: number, range: [number, number], width: number): number {
  const share = Math.min(1, Math.max(0, (x - LEFT) / width));
  return range[0] + share * (range[1] - range[0]);
}

interface Actions {
  /** The host drawn at a height, if the chart draws hosts. */
  hostAt?: (y: number) => number | null;
  click?: (host: number | null) => void;
  /** How far up and down keys move among the hosts drawn. */
  hosts?: () => number[];
}

/** Handle pointer and keys in an area of the page; returns a function that stops listening to the cursor. */
export function interact(area: HTMLElement, view: View, actions: Actions = {}): () => void {
  const line = h("div", { class: "cursor", hidden: true });
  const selection = h("div", { class: "selection", hidden: true });
  area.append(line, selection);
  let from: number | null = null;

  const x = (event: PointerEvent): number => event.clientX - area.getBoundingClientRect().left;
  const hostAt = (event: PointerEvent): number | null =>
    actions.hostAt?.(event.clientY - area.getBoundingClientRect().top) ?? null;

  const place = (): void => {
    const time = view.cursor?.time;
    const shown = time !== undefined && time >= view.range[0] && time <= view.range[1];
    line.hidden = !shown;
    if (shown) line.style.transform = `translateX(${xOf(time, view.range, plotWidth(area))}px)`;
  };

  area.addEventListener("pointermove", (event) => {
    view.point({ time: timeAt(x(event), view.range, plotWidth(area)), host: hostAt(event) });
    if (from === null) return;
    const [left, right] = [Math.min(from, x(event)), Math.max(from, x(event))];
    selection.hidden = right - left < CLICK;
    selection.style.left = `${Math.max(LEFT, left)}px`;
    selection.style.width = `${Math.min(area.clientWidth - RIGHT, right) - Math.max(LEFT, left)}px`;
  });
  area.addEventListener("pointerleave", () => view.point(null));
  area.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    from = x(event);
    area.setPointerCapture(event.pointerId);
  });
  area.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const [start, end] = [from, x(event)];
    from = null;
    selection.hidden = true;
    if (Math.abs(end - start) < CLICK) {
      actions.click?.(hostAt(event));
      return;
    }
    const times = [start, end]
      .map((at) => timeAt(at, view.range, plotWidth(area)))
      .sort((one, other) => one - other);
    view.zoom([times[0]!, times[1]!]);
  });
  area.addEventListener("pointercancel", () => {
    from = null;
    selection.hidden = true;
  });
  area.addEventListener("dblclick", () => view.zoom(view.whole));
  area.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // a plain wheel scrolls the page
      event.preventDefault();
      view.scale(event.deltaY > 0 ? 1.25 : 0.8);
    },
    { passive: false },
  );
  area.addEventListener("keydown", (event) => {
    if (move(event, view, actions)) event.preventDefault();
  });
  return view.on("cursor", place);
}

function move(event: KeyboardEvent, view: View, actions: Actions): boolean {
  const [start, end] = view.range;
  const step = (end - start) / (event.shiftKey ? 10 : 100);
  const time = view.cursor?.time ?? (start + end) / 2;
  const hosts = actions.hosts?.() ?? [];
  const host = view.cursor?.host ?? null;
  const at = host === null ? -1 : hosts.indexOf(host);
  switch (event.key) {
    case "ArrowLeft":
      view.point({ time: Math.max(start, time - step), host });
      return true;
    case "ArrowRight":
      view.point({ time: Math.min(end, time + step), host });
      return true;
    case "ArrowUp":
      view.point({ time, host: hosts[Math.max(0, at - 1)] ?? null });
      return true;
    case "ArrowDown":
      view.point({ time, host: hosts[Math.min(hosts.length - 1, at + 1)] ?? null });
      return true;
    case "Enter":
      actions.click?.(host);
      return true;
    default:
      return false;
  }
}
