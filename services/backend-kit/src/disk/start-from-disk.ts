import type { NodeView } from "@kpng/model/node-view.ts";
import type { Log } from "@kpng/process/log.ts";
import type { waitMs } from "@kpng/process/wait.ts";
import { diffViews } from "../state/diff-views.ts";
import type { ViewUpdate } from "../types/view-update.ts";
import { loadView } from "./load-view.ts";
import type { StateOptions } from "./state-folder.ts";

export interface StartFromDiskOptions {
  readonly state: StateOptions;
  readonly nodeName: string;
  readonly serviceProxyName: string;
  readonly log: Log;
  /**
   * True if rules of this backend stand in the kernel: they are at least as new as the view on disk, which may be old
   * if the disk could not be written to. They stay as they are then. Default: none do.
   */
  readonly hasRules?: (() => Promise<boolean>) | undefined;
  /** How long a watcher has to answer first, in milliseconds. Default 3 000. */
  readonly patienceMs?: number | undefined;
  readonly wait: typeof waitMs;
}

/**
 * Gives the view that this node had before to a backend if no watcher answers in time: after a power cut the nodes are
 * back before the watcher is, and until then their Services would not work.
 *
 * Returns undefined if a watcher was faster (`answered` aborts), if rules stand already, or if there is no fit view,
 * which is said.
 */
export async function startFromDisk(
  options: StartFromDiskOptions,
  answered: AbortSignal,
): Promise<ViewUpdate | undefined> {
  const { state, nodeName, serviceProxyName, log, patienceMs = 3_000, wait } = options;
  const { folder, maxAgeMs } = state;
  if (folder === undefined) return undefined;
  await wait(patienceMs, answered);
  if (answered.aborted) return undefined;
  if ((await options.hasRules?.()) === true) {
    log.info("no watcher answers: the rules that stand stay", { folder });
    return undefined;
  }
  const loaded = await loadView({ folder, nodeName, serviceProxyName, maxAgeMs, nowMs: Date.now() });
  if (loaded.kind === "refused") log.error("saved view ignored", { folder, reason: loaded.reason });
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

/** The first update of a watcher as the difference from the view of the disk: what is gone is deleted. */
export function sinceDisk(saved: NodeView, update: ViewUpdate): ViewUpdate {
  const keys = new Set([...saved.services.keys(), ...update.view.services.keys()]);
  return { ...update, changes: diffViews(saved, update.view, keys), isFirst: false };
}
