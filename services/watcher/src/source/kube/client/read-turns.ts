import { setImmediate as nextTurn } from "node:timers/promises";

/**
 * Lets other work run while responses of the API server are parsed. Resolves at once, or in the next turn of the event
 * loop after 10 ms of parsing. Without it, a list is one long turn: a read of a socket fills many chunks, which follow
 * each other without a turn.
 *
 * `openResponse` and `listPages` call it between two parts of a response. Separate, because both share the 10 ms, as do
 * the lists of all kinds, which arrive at the same time.
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
