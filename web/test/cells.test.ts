import assert from "node:assert/strict";
import { test } from "node:test";
import { ramp, type Colour } from "../src/colour.ts";
import type { Cells } from "../src/decode.ts";
import { visible } from "../src/dom.ts";
import { heightOf, linesOf, paint } from "../src/heatmap.ts";
import { bands, quantile, top } from "../src/stats.ts";

function cells(rows: number[][], spread = 0): Cells {
  const mean = Float32Array.from(rows.flat());
  return {
    rows: rows.length,
    buckets: rows[0]!.length,
    mean,
    low: mean.map((v) => v - spread),
    high: mean.map((v) => v + spread),
  };
}

test("bands are over the rows given, absent cells left out", () => {
  const found = bands(
    cells(
      [
        [1, NaN],
        [2, 5],
        [9, NaN],
        [100, NaN],
      ],
      0.5,
    ),
    [0, 1, 2],
  );
  assert.deepEqual(found, { min: [0.5, 4.5], median: [2, 5], p95: [9, 5], max: [9.5, 5.5] });
  assert.deepEqual(bands(cells([[NaN]]), [0]), { min: [null], median: [null], p95: [null], max: [null] });
});

test("quantiles are values that occur", () => {
  const sorted = Array.from({ length: 100 }, (_, at) => at + 1);
  assert.deepEqual(
    [0, 0.5, 0.95, 1].map((share) => quantile(sorted, share)),
    [1, 50, 95, 100],
  );
});

test("one spike does not use up the colour scale, an outlier row keeps its colour", () => {
  const calm = Array.from({ length: 2000 }, () => 10);
  assert.equal(top(Float32Array.from([...calm, 1000])), 12);
  assert.equal(top(Float32Array.from([...calm, ...Array(40).fill(100)])), 100);
  assert.equal(top(Float32Array.from([0, 0])), 1);
  assert.equal(top(Float32Array.from([])), 1);
});

test("more rows than lines: every row is in one line, and the greatest cell of a line is seen", () => {
  const lines = linesOf([0, 1, 2, 3, 4], 2);
  assert.deepEqual(lines, [
    [0, 1],
    [2, 3, 4],
  ]);
  const grey: Colour[] = Array.from({ length: 256 }, (_, at) => [at, at, at]);
  const all = cells([[0], [1], [0], [0], [NaN]]);
  assert.deepEqual([...paint(all, lines, 1, false, grey)], [255, 255, 255, 255, 0, 0, 0, 255]);
  assert.deepEqual([...paint(all, [[4], [-1]], 1, false, grey)], [0, 0, 0, 0, 0, 0, 0, 0]);
  assert.deepEqual([...paint(all, [[0, 1]], 1, true, grey)], [255, 255, 255, 255]);
});

test("the peak of a cell is painted, not its mean", () => {
  const grey: Colour[] = Array.from({ length: 256 }, (_, at) => [at, at, at]);
  assert.equal(paint(cells([[0.5]], 0.5), [[0]], 1, false, grey)[0], 255);
});

test("a map is as high as its rows, within limits", () => {
  assert.deepEqual([1, 10, 128, 1000].map(heightOf), [28, 140, 230, 320]);
});

test("colours get steadily darker in the light and lighter in the dark", () => {
  const brightness = ([red, green, blue]: Colour): number => 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  for (const dark of [false, true]) {
    const steps = ramp(dark).map(brightness);
    assert.equal(steps.length, 256);
    steps.slice(1).forEach((step, at) => assert.ok(dark ? step >= steps[at]! - 0.5 : step <= steps[at]! + 0.5));
  }
});

test("what would be invisible or turn text around is shown", () => {
  assert.equal(visible("a\u202eb\u0000c\u001b[31m\n\ud800"), "a\ufffdb\ufffdc\ufffd[31m \ufffd");
  assert.equal(visible("<script>\"'&"), "<script>\"'&");
  assert.equal(visible("größe 12 µs ✓"), "größe 12 µs ✓");
});
