// Bundles the scripts and styles of the pages into the given directory, to be embedded in HTML files.
import { readFile } from "node:fs/promises";
import { build } from "esbuild";

const directory = process.argv[2];
if (!directory) throw new Error("usage: node build.mjs DIRECTORY");

// The page contains uPlot, so it also contains its licence.
const licence = await readFile("node_modules/uplot/LICENSE", "utf8");

const options = {
  outdir: directory,
  bundle: true,
  minify: true,
  // Embedded in a script element: it must run immediately, define no globals, and be ASCII in any encoding.
  format: "iife",
  charset: "ascii",
  target: ["chrome115", "firefox115", "safari16.4"],
};

await build({
  ...options,
  entryPoints: { page: "src/main.ts", compare: "src/compare.ts" },
  banner: { js: `/* This page holds uPlot (github.com/leeoniya/uPlot).\n\n${licence.trim()}\n*/` },
});
await build({ ...options, entryPoints: { bundle: "src/bundle.ts" } });
