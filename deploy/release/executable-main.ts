import { createRequire, registerHooks } from "node:module";
import { getAsset } from "node:sea";

// The first file that the executable `kpng` runs. It makes Node.js take the modules of the bundle from the executable
// instead of the file system, each only when it is imported, so `kpng --version` reads 0.3 MB of 7 and nothing is
// written to a temporary folder.
//
// The modules have paths below /proc/self/exe/. That is a file, so no other user can put a module there. A path as first
// argument chooses another module than kpng.mjs: a laboratory starts its agents with `kpng /proc/self/exe/laboratory/…`,
// as it starts `node …/laboratory/agent.mjs` elsewhere.

const folder = "/proc/self/exe/";
const root = `file://${folder}`;

/** CommonJS module that imports the main module; the first file of an executable cannot import other files. */
const starter = `${root}start.cjs`;

/** Returns the URL of an embedded module; undefined for modules of Node.js. */
function resolveEmbedded(specifier: string, parent = ""): string | undefined {
  if (specifier.startsWith(folder)) return `file://${specifier}`;
  if (specifier.startsWith(root)) return specifier;
  if (!parent.startsWith(root)) return undefined;
  if (specifier.startsWith(".")) return new URL(specifier, parent).href;
  if (specifier === "koffi") return `${root}koffi/index.cjs`;
  return specifier.startsWith("@koromix/koffi-") ? `${root}koffi-native.cjs` : undefined;
}

registerHooks({
  resolve(specifier, context, next) {
    const url = resolveEmbedded(specifier, context.parentURL);
    if (url === undefined) return next(specifier, context);
    return { url, format: url.endsWith(".cjs") ? "commonjs" : "module", shortCircuit: true };
  },
  load(url, context, next) {
    if (!url.startsWith(root)) return next(url, context);
    const source = url === starter ? "import(process.argv[1]);" : getAsset(url.slice(root.length), "utf8");
    return { format: url.endsWith(".cjs") ? "commonjs" : "module", source, shortCircuit: true };
  },
});

// Node.js gives an executable its own path in place of a main module's.
const isChosen = process.argv[2]?.startsWith(folder) === true;
process.argv.splice(1, isChosen ? 1 : 0);
if (!isChosen) process.argv[1] = `${folder}kpng.mjs`;

createRequire(`${folder}main.cjs`)(starter);
