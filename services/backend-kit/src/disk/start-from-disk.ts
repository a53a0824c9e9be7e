import type { NodeView } from "@kpng/model/node-view.ts";
import type { Log } from "@kpng/process/log.ts";
import type { waitMs } from "@kpng/process/wait.ts";
import { diffViews } from "../state/diff-views.ts";
import type { ViewUpdate } from "../types/view-update.ts";
import { loadView } from "./load-view.ts";
import type { StateOptions } from "./state-folder.ts";

/** Options of {@link startFromDisk}. */
export interface StartFromDiskOptions {
  readonly state: StateOptions;
  readonly nodeName: string;
  readonly serviceProxyName: string;
  readonly log: Log;
  readonly wait: typeof waitMs;
}

/** Time that a watcher has to answer before the saved view is used, in milliseconds. */
const delayMs = 3_000;

/**
 * Returns the saved view if no watcher answers in time. `backendTask` calls it at its start: after a power failure,
 * nodes may be up before the watcher is, and without the saved view their Services would not work until then. Separate
 * from `loadView`, which reads the file: this function only decides whether and when.
 *
 * Returns undefined if a watcher answers first (`answered` aborts), or if there is no usable view, which is logged. A
 * backend whose rules outlive it must compare the view with them (`ViewUpdate.isFromDisk`), because they may be newer.
 */
export async function startFromDisk(
  options: StartFromDiskOptions,
  answered: AbortSignal,
): Promise<ViewUpdate | undefined> {
  const { state, nodeName, serviceProxyName, log, wait } = options;
  const { folder, maxAgeMs } = state;
  if (folder === undefined) return undefined;
  await wait(delayMs, answered);
  if (answered.aborted) return undefined;
  const loaded = await loadView({ folder, nodeName, serviceProxyName, maxAgeMs, nowMs: Date.now() });
  if (loaded.kind === "refused") log.error("ignoring the saved view", { folder, reason: loaded.reason });
  if (loaded.kind !== "view" || answered.aborted) return undefined;
  const { update, currentAtMs, isAfterReboot } = loaded;
  log.info("no watcher answers: starting with the saved view", {
    folder,
    currentAt: new Date(currentAtMs).toISOString(),
    isAfterReboot,
    services: update.view.services.size,
  });
  return update;
}

/**
 * Returns the watcher's first update with other `changes`: those that lead from the saved view to the watcher's view.
 * `backendTask` calls it after a start from the saved view.
 */
export function diffFromSaved(saved: NodeView, update: ViewUpdate): ViewUpdate {
  const keys = new Set([...saved.services.keys(), ...update.view.services.keys()]);
  return { ...update, changes: diffViews(saved, update.view, keys), isFirst: false };
}
