import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { amount, clock, duration, ticks, times } from "../src/format.ts";

/** The cases of the terminal: the page shows the same texts. */
function cases(name: string): any[] {
  return JSON.parse(readFileSync(new URL(`../../tests/data/formatting/${name}.json`, import.meta.url), "utf-8"));
}

const amounts: [value: number | null, unit: string, shown: string][] = [
  ...cases("amounts"),
  [null, "%", "no data"],
  [NaN, "B/s", "no data"],
];

for (const [value, unit, shown] of amounts) {
  test(`amount ${value} ${unit}`, () => assert.equal(amount(value, unit), shown));
}

for (const [seconds, shown] of cases("durations")) {
  test(`duration ${seconds}`, () => assert.equal(duration(1000 * seconds), shown));
}

for (const [ratio, shown] of cases("multiples")) {
  test(`multiple ${ratio}`, () => assert.equal(times(ratio), shown));
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
