import { cp, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of the all-IP example: manifests and the program for the callout. */
export const exampleFolder = fileURLToPath(new URL("../../../../examples/all-ip/", import.meta.url));

/** Copies the example's manifests into a folder that may be changed. */
export async function copyManifests(folder: string): Promise<void> {
  await cp(join(exampleFolder, "manifests"), folder, { recursive: true });
}

/** Reads one manifest of the example as it was before any change. */
export async function readManifest(name: string): Promise<string> {
  return readFile(join(exampleFolder, "manifests", name), "utf8");
}

/**
 * Replaces one manifest as an editor or a ConfigMap does: a new file takes the old one's place, never half of it.
 *
 * Returns when it took place, by `performance.now()`.
 */
export async function replaceManifest(folder: string, name: string, text: string): Promise<number> {
  const next = `${folder}.${name}`;
  await writeFile(next, text);
  const changedAtMs = performance.now();
  await rename(next, join(folder, name));
  return changedAtMs;
}

/** Takes the endpoint with this address out of an EndpointSlice. */
export function withoutEndpoint(slice: string, address: string): string {
  const lines = slice.split("\n");
  const start = lines.findIndex((line) => line.startsWith("  - addresses:") && line.includes(`"${address}"`));
  if (start < 0) return slice;
  const length = lines.slice(start + 1).findIndex((line) => !line.startsWith("    "));
  return lines.toSpliced(start, length + 1).join("\n");
}
