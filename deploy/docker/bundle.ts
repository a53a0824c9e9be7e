import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

// Makes one file of each process that an image runs: `node deploy/docker/bundle.ts FOLDER`. A container then needs
// Node.js and that file, and starts without reading hundreds of others.

const mains = {
  kpng: "services/cli/src/main.ts",
  "kpng-callout": "services/backend-callout/src/main.ts",
};

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error("usage: node deploy/docker/bundle.ts FOLDER");

await build({
  absWorkingDir: fileURLToPath(new URL("../..", import.meta.url)),
  entryPoints: mains,
  outdir: resolve(folder),
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  target: "node24",
  format: "esm",
  // Packages in the older module format call `require` for the modules of Node.js; an ES module has none by itself. The
  // name is our own: packages in the newer format import createRequire too, and end up in the same file.
  banner: {
    js: 'import { createRequire as makeRequire } from "node:module";\nconst require = makeRequire(import.meta.url);',
  },
});
