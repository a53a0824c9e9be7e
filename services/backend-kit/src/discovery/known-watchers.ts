import { mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { createOwnFile, openOwnFile } from "@kpng/process/regular-file.ts";

/** Maximum size of the file, in bytes: many times the addresses of a cluster's watchers. */
const maxFileBytes = 1024 * 1024;

/**
 * Addresses of watchers that a node saves for its next start, in `watchers.json` of the state folder. `dialWatchers`
 * reads the file at its first stream and writes it when an address works. Separate from the saved view of `disk/`:
 * these addresses are needed before any view arrives.
 */
export interface KnownWatchers {
  /** The address that worked last; undefined if none has. */
  readonly lastGood: string | undefined;
  /** Addresses of each name at its last successful resolution. */
  readonly addressesByHost: ReadonlyMap<string, readonly string[]>;
}

/** State of a node that has not connected to a watcher yet. */
export const nothingKnown: KnownWatchers = { lastGood: undefined, addressesByHost: new Map() };

/**
 * Reads the saved addresses for `dialWatchers`. A missing or invalid file counts as empty, because the file only makes
 * a start quicker.
 */
export async function readKnownWatchers(folder: string): Promise<KnownWatchers> {
  try {
    await using file = await openOwnFile(pathIn(folder), maxFileBytes);
    return decode(JSON.parse(await file.readFile("utf8")));
  } catch {
    return nothingKnown;
  }
}

/** Replaces the file atomically. Errors: those of the file system. */
export async function writeKnownWatchers(folder: string, known: KnownWatchers): Promise<void> {
  const { lastGood, addressesByHost } = known;
  const json = JSON.stringify({ version: 1, lastGood, addresses: Object.fromEntries(addressesByHost) });
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const draft = `${pathIn(folder)}.tmp`;
  {
    await using file = await createOwnFile(draft);
    await file.writeFile(`${json}\n`);
  }
  await rename(draft, pathIn(folder));
}

function pathIn(folder: string): string {
  return join(folder, "watchers.json");
}

function decode(value: unknown): KnownWatchers {
  if (typeof value !== "object" || value === null || !("version" in value) || value.version !== 1) return nothingKnown;
  const lastGood = "lastGood" in value && typeof value.lastGood === "string" ? value.lastGood : undefined;
  const addresses = "addresses" in value && typeof value.addresses === "object" ? (value.addresses ?? {}) : {};
  const addressesByHost = new Map<string, readonly string[]>();
  for (const [host, list] of Object.entries(addresses)) {
    if (Array.isArray(list) && list.every((item) => typeof item === "string")) addressesByHost.set(host, list);
  }
  return { lastGood, addressesByHost };
}
