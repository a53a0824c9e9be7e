import { cpSync } from "node:fs";
import { join, resolve } from "node:path";
import { build } from "esbuild";
import { bundleOptions } from "./bundle-options.ts";
import type { Architecture } from "./debian.ts";
import { defaultCache, fetchKoffi, hostArchitecture, koffiPackage } from "./npm.ts";

/**
 * Bundles the programs of the images. `layers.ts` calls it, and tests that need programs as the images have them run
 * `node deploy/images/bundle.ts FOLDER`.
 */

const mains = {
  kpng: "services/cli/src/main.ts",
  "kpng-callout": "services/backend-callout/src/main.ts",
  "kpng-iptables": "services/backend-iptables/src/main.ts",
  "kpng-nft": "services/backend-nft/src/main.ts",
  "kpng-ipvs": "services/backend-ipvs/src/main.ts",
  "kpng-ebpf": "services/backend-ebpf/src/main.ts",
  "kpng-userspace": "services/backend-userspace/src/main.ts",
  "kpng-json": "services/backend-json/src/main.ts",
};

/** Folders with code for npm packages, relative to the root of the repository. */
export type PackageFolders = readonly string[];

/**
 * Writes the programs to `folder`, and koffi beside them: `kpng-nft` and `kpng-ebpf` load it at run time, because its
 * native module cannot be bundled.
 *
 * Returns the folders of all npm packages that the result contains.
 */
export async function bundlePrograms(
  folder: string,
  architecture: Architecture,
  cache: string,
): Promise<PackageFolders> {
  const { metafile } = await build({ ...bundleOptions, entryPoints: mains, outdir: folder, metafile: true });
  const isNeeded = (from: string): boolean => !/\/koffi\/(vendor|lib|doc)$|\.(cc|hh|inc|S|asm)$/.test(from);
  const native = [
    ["koffi", join(bundleOptions.absWorkingDir, "node_modules/koffi")],
    [koffiPackage(architecture), fetchKoffi(architecture, cache)],
  ] as const;
  for (const [name, from] of native)
    cpSync(from, join(folder, "node_modules", name), { recursive: true, filter: isNeeded });
  const bundled = Object.keys(metafile.inputs).flatMap(
    (path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path) ?? [],
  );
  return [...new Set([...bundled, ...native.map(([, from]) => from)])].sort();
}

if (import.meta.main) {
  const [folder] = process.argv.slice(2);
  if (folder === undefined) throw new Error("usage: node deploy/images/bundle.ts FOLDER");
  await bundlePrograms(resolve(folder), hostArchitecture(), defaultCache);
}
