import { cpSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { build } from "esbuild";
import { bundleOptions } from "./bundle-options.ts";

// Bundles the programs of the images: `node deploy/docker/bundle.ts FOLDER`.

const mains = {
  kpng: "services/cli/src/main.ts",
  "kpng-callout": "services/backend-callout/src/main.ts",
  "kpng-iptables": "services/backend-iptables/src/main.ts",
  "kpng-nft": "services/backend-nft/src/main.ts",
  "kpng-json": "services/backend-json/src/main.ts",
};

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error("usage: node deploy/docker/bundle.ts FOLDER");

await build({ ...bundleOptions, entryPoints: mains, outdir: resolve(folder) });

// kpng-nft loads koffi at run time: its native module cannot be bundled. npm has installed the one of this platform.
const packages = join(bundleOptions.absWorkingDir, "node_modules");
const isNeeded = (from: string): boolean => !/\/koffi\/(vendor|lib|doc)$|\.(cc|hh|inc|S|asm)$/.test(from);
for (const name of ["koffi", ...readdirSync(join(packages, "@koromix")).map((platform) => `@koromix/${platform}`)])
  cpSync(join(packages, name), join(resolve(folder), "node_modules", name), { recursive: true, filter: isNeeded });
