// Bundles the page's script and style into the directory given, ready to be put inside an HTML file.
import { readFile } from "node:fs/promises";
import { build } from "esbuild";

const directory = process.argv[2];
if (!directory) throw new Error("usage: node build.mjs DIRECTORY");

// The page goes on to others with uPlot inside: so does its licence.
const licence = await readFile("node_modules/uplot/LICENSE", "utf8");

await build({
  entryPoints: { page: "src/main.ts" },
  outdir: directory,
  bundle: true,
  minify: true,
  // One script tag holds it: it must run at once, share no globals, and be plain ASCII whatever the page's encoding.
  format: "iife",
  charset: "ascii",
  target: ["chrome115", "firefox115", "safari16.4"],
  banner: { js: `/* This page holds uPlot (github.com/leeoniya/uPlot).\n\n${licence.trim()}\n*/` },
});
