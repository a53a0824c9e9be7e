import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { isAlive } from "./child.ts";

/**
 * Runs `work` while holding a lock across processes: a folder that contains the process id of its holder.
 *
 * Takes over the lock of a dead process. Waits without limit, because a build has no time limit.
 */
export async function withLock<T>(path: string, work: () => Promise<T>): Promise<T> {
  while (!take(path)) await sleep(200);
  try {
    return await work();
  } finally {
    rmSync(path, { recursive: true, force: true });
  }
}

function take(path: string): boolean {
  try {
    mkdirSync(path);
  } catch {
    const holder = readHolder(path);
    if (holder !== undefined && !isAlive(holder)) rmSync(path, { recursive: true, force: true });
    return false;
  }
  writeFileSync(join(path, "pid"), String(process.pid));
  return true;
}

/** Returns the holder; undefined while it has created the folder but not yet written its id. */
function readHolder(path: string): number | undefined {
  try {
    const text = readFileSync(join(path, "pid"), "utf8");
    return text === "" ? undefined : Number(text);
  } catch {
    return undefined;
  }
}
