import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

// Makes one file of each process, and a few more of what only some runs need: `node deploy/docker/bundle.ts FOLDER`. A
// container then needs Node.js and that folder, starts without reading hundreds of files, and keeps no compiler for
// TypeScript in its memory. Why it matters: docs/decisions/0021-memory-of-a-backend.md.

const mains = {
  kpng: "services/cli/src/main.ts",
  "kpng-callout": "services/backend-callout/src/main.ts",
  "kpng-iptables": "services/backend-iptables/src/main.ts",
  "kpng-json": "services/backend-json/src/main.ts",
};

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error("usage: node deploy/docker/bundle.ts FOLDER");

await build({
  absWorkingDir: fileURLToPath(new URL("../..", import.meta.url)),
  entryPoints: mains,
  outdir: resolve(folder),
  outExtension: { ".js": ".mjs" },
  bundle: true,
  // What is imported when it is needed, such as the exporter of traces, stays in files of its own.
  splitting: true,
  chunkNames: "parts/[name]-[hash]",
  platform: "node",
  target: "node24",
  format: "esm",
  // Comments go: one letter beyond Latin-1 in them doubles what the source takes in memory. Names stay, for stack traces.
  minifyWhitespace: true,
  minifySyntax: true,
  legalComments: "none",
  // Packages in the older module format call `require` for the modules of Node.js; an ES module has none by itself. The
  // name is our own: packages in the newer format import createRequire too, and end up in the same file.
  banner: {
    js: 'import { createRequire as makeRequire } from "node:module";\nconst require = makeRequire(import.meta.url);',
  },
});
