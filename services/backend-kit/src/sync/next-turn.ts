import { setImmediate } from "node:timers/promises";

/**
 * Resolves after pending timers and sockets were handled. Long computations await it between parts, so that health,
 * metrics and the stream from the watcher are still served.
 */
export function nextTurn(): Promise<void> {
  return setImmediate();
}
