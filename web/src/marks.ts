// Marks in every chart: the edges of the command and of the phases.

import { theme } from "./colour.ts";
import { xOf } from "./interact.ts";
import type { View } from "./view.ts";

/** Draw the marks over a chart; the unit of `draw` is CSS pixels. */
export function drawMarks(
  draw: CanvasRenderingContext2D,
  view: View,
  width: number,
  top: number,
  bottom: number,
): void {
  draw.save();
  draw.lineWidth = 1;
  for (const mark of view.page.marks) {
    if (mark.kind !== "command" && mark.kind !== "phase") continue;
    draw.strokeStyle = theme(mark.kind === "command" ? "mark-command" : "mark-phase");
    draw.setLineDash(mark.kind === "command" ? [] : [3, 3]);
    for (const time of [mark.start, mark.end]) {
      if (time <= view.range[0] || time >= view.range[1]) continue;
      const x = Math.round(xOf(time, view.range, width)) + 0.5;
      draw.beginPath();
      draw.moveTo(x, top);
      draw.lineTo(x, bottom);
      draw.stroke();
    }
  }
  draw.restore();
}
