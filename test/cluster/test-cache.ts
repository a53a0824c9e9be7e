import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { isAlive } from "./child.ts";

/**
 * Returns a folder for files that tests keep between runs because making them takes minutes: programs in
 * `control-plane`, images and nodes in `e2e`, a kernel in `guest`, Python packages in `python`. It may not exist yet.
 */
export function testCache(name: "control-plane" | "e2e" | "guest" | "python"): string {
  return join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "kpng", name);
}

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

const prefix = "kpng-cluster-";

/** Creates a folder for one cluster, and removes folders of killed test processes. */
export function makeTempFolder(parent = tmpdir()): string {
  mkdirSync(parent, { recursive: true });
  for (const name of readdirSync(parent)) {
    const pid = new RegExp(`^${prefix}(\\d+)-`).exec(name)?.[1];
    if (pid !== undefined && !isAlive(Number(pid))) rmSync(join(parent, name), { recursive: true, force: true });
  }
  return mkdtempSync(join(parent, `${prefix}${process.pid}-`));
}
