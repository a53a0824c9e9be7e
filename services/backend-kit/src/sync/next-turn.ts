import { setImmediate } from "node:timers/promises";

/** Resolves after timers and sockets had their turn: long work that waits for it now and then blocks nobody. */
export function nextTurn(): Promise<void> {
  return setImmediate();
}
