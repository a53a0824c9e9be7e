import { chmod, realpath, rename, rm, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { Task } from "@kpng/process/task.ts";
import { waitMs } from "@kpng/process/wait.ts";
import type { ClusterObjects } from "@kpng/source/source.ts";
import { WatcherError } from "@kpng/source/watcher-error.ts";
import type { Snapshot } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import { formatState } from "./format-state.ts";

/**
 * The sink `to-file`: writes the cluster state in KPNG's format after each revision. Revisions that arrive during a
 * write are written together. A failed write (disk full, no permission) is logged, reported in health, and retried; if
 * `isOnce`, the task rejects with WRITE_FAILED instead.
 */
export function stateFileSink(options: StateFileOptions): Task {
  return { name: part, run: (signal) => run(options, signal) };
}

export interface StateFileOptions {
  readonly store: Store;
  /** File to write, as JSON if its name ends in ".json"; "-" for standard output. */
  readonly path: string;
  /** True to end after the first state. Default false; always true for standard output. */
  readonly isOnce?: boolean | undefined;
  readonly log: Log;
  readonly health: Health;
}

const part = "sink/file";

const retryMs = 1_000;

async function run({ store, path, isOnce, log, health }: StateFileOptions, signal: AbortSignal): Promise<void> {
  let written = 0;
  health.setWaiting(part, "waiting for the cluster state");
  for (;;) {
    const snapshot = await store.next(written, signal);
    if (snapshot === undefined) return;
    const text = formatState(objectsOf(snapshot), path.endsWith(".json") ? "json" : "yaml");
    if (path === "-") {
      // `runProcess` waits until the text is written.
      process.stdout.write(text);
      return;
    }
    try {
      await writeFileAtomically(path, text);
      written = snapshot.revision;
      health.setReady(part);
      log.info("state written", { path, revision: written });
      if (isOnce === true) return;
    } catch (error) {
      if (isOnce === true) throw error;
      health.setFailing(part, reasonOf(error));
      log.error("writing the state failed, retrying", { path, revision: snapshot.revision, reason: reasonOf(error) });
      await waitMs(retryMs, signal);
    }
  }
}

function objectsOf(snapshot: Snapshot): ClusterObjects {
  const slices: readonly EndpointSlice[] = [...snapshot.slicesByService.values()].flat();
  return { services: [...snapshot.services.values()], slices, nodes: [...snapshot.nodes.values()] };
}

/**
 * Replaces the content of a file atomically, by renaming a draft in the same folder. The file keeps its mode; if it is
 * a symbolic link, its target is replaced, or the link itself if it has no target. Errors: WRITE_FAILED with the path;
 * the file is then unchanged, and no draft is left.
 */
export async function writeFileAtomically(path: string, text: string): Promise<void> {
  try {
    const target = await realpath(path).catch(() => path);
    const stats = await stat(target).catch(() => undefined);
    // The rename below would replace a device such as /dev/null with a file.
    if (stats?.isFile() === false) throw new Error("it exists and is not a regular file");
    // Readers of folders ignore dot files.
    const draft = join(dirname(target), `.${basename(target)}.tmp`);
    try {
      await writeFile(draft, text, { flush: true });
      if (stats !== undefined) await chmod(draft, stats.mode & 0o7777);
      await rename(draft, target);
    } catch (error) {
      await rm(draft, { force: true }).catch(() => undefined);
      throw error;
    }
  } catch (cause) {
    throw new WatcherError("WRITE_FAILED", `cannot write ${path}: ${reasonOf(cause)}`, { cause });
  }
}
