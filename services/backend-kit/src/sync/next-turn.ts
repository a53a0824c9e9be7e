import { setImmediate } from "node:timers/promises";

/**
 * Resolves after pending timers and sockets were handled. Long computations await it between parts, so that health,
 * metrics and the stream from the watcher are still served.
 *
 * The sync loop calls it between syncs; renderers, planners and shadow mode between groups of Services. It has a file
 * of its own, because they share nothing else.
 */
export function nextTurn(): Promise<void> {
  return setImmediate();
}
