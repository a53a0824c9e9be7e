import { turns } from "../stream/turns.ts";

/** How long one piece of a long answer may take, in milliseconds. */
const sliceMs = 5;

/**
 * Calls `visit` for each item until it returns false, some milliseconds at a time and after all that is due to
 * subscribers, so that a question about a big cluster delays no node. Ends early when `signal` aborts.
 */
export async function eachInTurns<T>(
  items: Iterable<T>,
  visit: (item: T) => boolean,
  signal: AbortSignal,
): Promise<void> {
  const iterator = items[Symbol.iterator]();
  const visitSome = (): boolean => {
    const untilMs = performance.now() + sliceMs;
    while (!signal.aborted) {
      const next = iterator.next();
      if (next.done === true || !visit(next.value)) return true;
      if (performance.now() >= untilMs) return false;
    }
    return true;
  };
  // Whatever was begun waits behind those who are to have their view.
  while (!(await turns.run("begin", visitSome)));
}
