import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { amount, clock, duration, ticks } from "../src/format.ts";

const amounts: [value: number | null, unit: string, shown: string][] = [
  // The cases of the terminal: the page shows the same numbers.
  ...JSON.parse(readFileSync(new URL("../../tests/data/formatting/amounts.json", import.meta.url), "utf-8")),
  [null, "%", "no data"],
  [NaN, "B/s", "no data"],
];

for (const [value, unit, shown] of amounts) {
  test(`amount ${value} ${unit}`, () => assert.equal(amount(value, unit), shown));
}

const durations: [ms: number, shown: string][] = [
  [0, "0 s"],
  [250, "0.25 s"],
  [59_000, "59 s"],
  [60_000, "1 min"],
  [61_000, "1 min 1 s"],
  [3_600_000, "1 h"],
  [3_456_000, "57 min 36 s"],
  [90_061_000, "1 d 1 h"],
];

for (const [ms, shown] of durations) {
  test(`duration ${ms}`, () => assert.equal(duration(ms), shown));
}

test("times are in UTC whatever the clock of the reader", () => {
  assert.equal(clock(Date.UTC(2026, 10, 15, 12, 4, 9)), "12:04:09");
  assert.equal(clock(Date.UTC(2026, 10, 15, 12, 4, 9), false), "12:04");
});

test("ticks show as much as their distance needs", () => {
  const at = Date.UTC(2026, 10, 15, 12, 4, 9, 500);
  assert.deepEqual(ticks([at], 86_400_000), ["11-15"]);
  assert.deepEqual(ticks([at], 60_000), ["12:04"]);
  assert.deepEqual(ticks([at], 5000), ["12:04:09"]);
  assert.deepEqual(ticks([at], 100), ["12:04:09.500"]);
});
