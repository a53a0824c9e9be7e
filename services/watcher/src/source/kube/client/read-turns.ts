import { setImmediate as nextTurn } from "node:timers/promises";

/**
 * Resolves when the next part of a response may be parsed: now, or in the next turn of the event loop if this turn has
 * parsed for 10 ms. The lists of all kinds arrive at the same time, so they share the 10 ms.
 *
 * `openResponse` and `listPages` call it between two parts. Without it, a list is one long turn: a read of a socket
 * fills many chunks, which follow each other without a turn.
 */
export async function readTurn(): Promise<void> {
  while (performance.now() >= untilMs) {
    turning ??= nextTurn().then(() => {
      turning = undefined;
      untilMs = performance.now() + sliceMs;
    });
    await turning;
  }
}

/** Longest time of parsing in one turn, in milliseconds. */
const sliceMs = 10;

let untilMs = 0;
let turning: Promise<void> | undefined;
