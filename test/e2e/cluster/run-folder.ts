import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { isAlive } from "../../cluster/child.ts";
import { testCache } from "../../cluster/test-cache.ts";

const folderPrefix = "run-";

/** Creates a folder for one cluster or guest next to the image store, and removes what killed processes have left. */
export function makeRunFolder(): string {
  const cache = testCache("e2e");
  mkdirSync(cache, { recursive: true });
  for (const name of readdirSync(cache)) {
    const pid = new RegExp(`^${folderPrefix}(\\d+)-`).exec(name)?.[1];
    if (pid === undefined || isAlive(Number(pid))) continue;
    rmSync(join(cache, name), { recursive: true, force: true });
  }
  return mkdtempSync(join(cache, `${folderPrefix}${process.pid}-`));
}

/** Removes images and databases from a folder of `makeRunFolder`. */
export function removeAllButLogs(folder: string): void {
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isDirectory() && ["containerd", "etcd", "images"].includes(entry.name)) {
      rmSync(join(entry.parentPath, entry.name), { recursive: true, force: true });
    }
  }
}
