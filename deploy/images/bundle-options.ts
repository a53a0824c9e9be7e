import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import type { BuildOptions } from "esbuild";

const traceExporter = "@opentelemetry/exporter-trace-otlp-grpc";

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
  // The ES module of the exporter loads @grpc/grpc-js by a `require` that esbuild does not see, so the bundle would
  // lack it. The CommonJS variant has a plain `require`.
  alias: {
    [traceExporter]: createRequire(import.meta.resolve("@kpng/process/trace/export-traces.ts")).resolve(traceExporter),
  },
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
