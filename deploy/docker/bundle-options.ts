import { fileURLToPath } from "node:url";
import type { BuildOptions } from "esbuild";

/**
 * How the programs of the images are made: one file of each process, and a few more of what only some runs need. It then
 * needs Node.js and that folder, starts without reading hundreds of files, and keeps no compiler for TypeScript in its
 * memory. Why it matters: docs/decisions/0021-memory-of-a-backend.md.
 */
export const bundleOptions = {
  absWorkingDir: fileURLToPath(new URL("../..", import.meta.url)),
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
} satisfies BuildOptions;
