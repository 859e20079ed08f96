import assert from "node:assert/strict";
import { test } from "node:test";
import type { Host, Page } from "../src/model.ts";
import { matches, View, within } from "../src/view.ts";

const filters: [name: string, filter: string, found: boolean][] = [
  ["node17", "", true],
  ["node17", "17", true],
  ["node17", "NODE", true],
  ["node17", "node 7", true],
  ["node17", "node, 8", false],
  ["node17", "node*", true],
  ["node17", "*7", true],
  ["node17", "ode*", false],
  ["node17", "n*1*", true],
  ["a.b", "a.b", true],
  ["axb", "a.b", false],
  ["[x](", "[x](", true],
];

for (const [name, filter, found] of filters) {
  test(`filter ${JSON.stringify(filter)} on ${name}`, () => assert.equal(matches(name, filter), found));
}

test("a range stays within the whole and is never too short", () => {
  assert.deepEqual(within([-5, 5], [0, 100], 1), [0, 10]);
  assert.deepEqual(within([95, 120], [0, 100], 1), [75, 100]);
  assert.deepEqual(within([50, 50], [0, 100], 10), [50, 60]);
  assert.deepEqual(within([-50, 500], [0, 100], 10), [0, 100]);
});

function view(charts: object[] = []): View {
  const host = (name: string, status: string): Host => ({ name, status }) as Host;
  const hosts = [host("n1", "complete"), host("n2", "partial"), host("n3", "complete"), host("m4", "complete")];
  const findings = [[2], [0], [2], [3, 1]].map((hosts, at) => ({
    hosts,
    metrics: at < 3 ? ["x"] : [],
    silenced: "",
  }));
  return new View({ start: 0, end: 100_000, interval: 1, hosts, findings, charts } as unknown as Page);
}

test("hosts are filtered by name and status, and ordered by how unusual they are", () => {
  const shown = view();
  shown.choose({ filter: "n" });
  assert.deepEqual(shown.hosts, [0, 1, 2]);
  shown.choose({ status: "complete" });
  assert.deepEqual(shown.hosts, [0, 2]);
  shown.choose({ filter: "", status: null, order: "unusual" });
  assert.deepEqual(shown.hosts, [2, 0, 1, 3]);
});

test("zooming calls the listeners, and stops at the edges", () => {
  const shown = view();
  let calls = 0;
  const unsubscribe = shown.on("range", () => calls++);
  shown.zoom([20_000, 60_000]);
  assert.deepEqual(shown.range, [20_000, 60_000]);
  shown.scale(0.5, 40_000);
  assert.deepEqual(shown.range, [30_000, 50_000]);
  shown.pan(10);
  assert.deepEqual(shown.range, [80_000, 100_000]);
  shown.zoom([50_000, 50_000]);
  assert.deepEqual(shown.range, [50_000, 55_000]);
  assert.equal(calls, 4);
  unsubscribe();
  shown.zoom(shown.whole);
  assert.equal(calls, 4);
  assert.equal(shown.zoomed, false);
});

test("samples at both ends of a short run are inside its range", () => {
  assert.deepEqual(view().whole, [0, 100_000]);
  const chart = { start: -1500, bucket: 1000, packed: { buckets: 103 } };
  assert.deepEqual(view([chart]).whole, [-1500, 101_500]);
  assert.deepEqual(view([{ start: -400, bucket: 1000, packed: { buckets: 100 } }]).whole, [0, 100_000]);
});

test("stepping moves among the hosts shown", () => {
  const shown = view();
  shown.choose({ filter: "n" });
  shown.step(1);
  assert.equal(shown.selected, 0);
  shown.step(5);
  assert.equal(shown.selected, 2);
  shown.step(-1);
  assert.equal(shown.selected, 1);
});
