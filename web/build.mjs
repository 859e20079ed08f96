// Bundles the page's script and style into the directory given, ready to be put inside an HTML file.
import { build } from "esbuild";

const directory = process.argv[2];
if (!directory) throw new Error("usage: node build.mjs DIRECTORY");

await build({
  entryPoints: { page: "src/main.ts" },
  outdir: directory,
  bundle: true,
  minify: true,
  // One script tag holds it: it must run at once, share no globals, and be plain ASCII whatever the page's encoding.
  format: "iife",
  charset: "ascii",
  target: ["chrome115", "firefox115", "safari16.4"],
  legalComments: "inline",
});
