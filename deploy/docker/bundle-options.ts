import { fileURLToPath } from "node:url";
import type { BuildOptions } from "esbuild";

/**
 * Options of esbuild for the programs in the images: one file for each program, and a few shared files for code that
 * only some runs need.
 *
 * A bundled program needs only Node.js and that folder, starts without reading hundreds of files, and does not hold a
 * TypeScript compiler in memory. Measurements: docs/decisions/0021-memory-of-a-backend.md.
 */
export const bundleOptions = {
  absWorkingDir: fileURLToPath(new URL("../..", import.meta.url)),
  outExtension: { ".js": ".mjs" },
  bundle: true,
  // Dynamically imported modules, such as the trace exporter, stay in separate files.
  splitting: true,
  chunkNames: "parts/[name]-[hash]",
  platform: "node",
  target: "node24",
  format: "esm",
  // Removes comments: one character outside Latin-1 doubles the memory of the source. Names stay for stack traces.
  minifyWhitespace: true,
  minifySyntax: true,
  legalComments: "none",
  // CommonJS packages call `require` for modules of Node.js, and an ES module has no `require`. The import is renamed
  // because bundled ES modules import `createRequire`, too.
  banner: {
    js: 'import { createRequire as makeRequire } from "node:module";\nconst require = makeRequire(import.meta.url);',
  },
} satisfies BuildOptions;
