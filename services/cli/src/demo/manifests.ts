import { cp, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * Folder of the all-IP example, which the demo shows: manifests, and a program for kpng-callout. The demo copies the
 * manifests, changes its copies, and thereby changes the cluster that its watcher reads.
 */
export const exampleFolder = fileURLToPath(new URL("../../../../examples/all-ip/", import.meta.url));

/**
 * Copies the example's manifests into a folder whose files the demo changes. `runWalkthrough` and `renderRules` call
 * it. Separate from the steps of the demo, which only change texts.
 */
export async function copyManifests(folder: string): Promise<void> {
  await cp(join(exampleFolder, "manifests"), folder, { recursive: true });
}

/** Reads an unchanged manifest of the example. */
export async function readManifest(name: string): Promise<string> {
  return readFile(join(exampleFolder, "manifests", name), "utf8");
}

/**
 * Replaces a manifest atomically, with a rename, as editors and ConfigMap volumes do.
 *
 * Returns the time of the rename, by `performance.now()`.
 */
export async function replaceManifest(folder: string, name: string, text: string): Promise<number> {
  const next = `${folder}.${name}`;
  await writeFile(next, text);
  const changedAtMs = performance.now();
  await rename(next, join(folder, name));
  return changedAtMs;
}

/** Returns the text of an EndpointSlice without the endpoint that has this address. */
export function withoutEndpoint(slice: string, address: string): string {
  const lines = slice.split("\n");
  const start = lines.findIndex((line) => line.startsWith("  - addresses:") && line.includes(`"${address}"`));
  if (start < 0) return slice;
  const length = lines.slice(start + 1).findIndex((line) => !line.startsWith("    "));
  return lines.toSpliced(start, length + 1).join("\n");
}
