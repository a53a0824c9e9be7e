import { globSync, rmSync, statSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { testCache } from "../cluster/test-cache.ts";

/** Time after which an unused folder is removed. */
const keptMs = 24 * 3_600_000;

/**
 * Marks a folder of the cache as used now, and removes those with the same prefix that were not used for a day: each
 * change of what goes into a folder makes another one of some hundred megabytes. For images and image stores.
 */
export function keepUsed(prefix: "images-" | "store-", used: string): void {
  const now = Date.now();
  utimesSync(used, now / 1000, now / 1000);
  for (const name of globSync(`${prefix}*`, { cwd: testCache("e2e") })) {
    const folder = join(testCache("e2e"), name);
    if (now - statSync(folder).mtimeMs > keptMs) rmSync(folder, { recursive: true });
  }
}
