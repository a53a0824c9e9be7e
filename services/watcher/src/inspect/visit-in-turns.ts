import { Code, ConnectError } from "@connectrpc/connect";
import { scheduler } from "../stream/session/scheduler.ts";

/**
 * Calls `visit` for each item until it returns false, a few milliseconds at a time and with the smallest share of all
 * scheduled work. So queries about a large cluster do not delay updates of nodes.
 *
 * Returns true if it reached the end of the items. After false, another call with the same iterator continues.
 *
 * Errors: the reason of `signal` if it aborts before the end, so that an incomplete response is never returned as
 * complete.
 *
 * `collect-page.ts` calls it for lists, and `follow-rows.ts` for watches. Separate from the scheduler, because only
 * inspection visits lists in this way.
 */
export async function visitInTurns<T>(
  items: Iterable<T>,
  visit: (item: T) => boolean,
  signal: AbortSignal,
): Promise<boolean> {
  let isDone = false;
  let isEnd = false;
  const iterator = items[Symbol.iterator]();
  const visitSome = (): boolean => {
    const untilMs = performance.now() + sliceMs;
    while (!signal.aborted) {
      const next = iterator.next();
      isEnd = next.done === true;
      isDone = next.done === true || !visit(next.value);
      if (isDone) return true;
      if (performance.now() >= untilMs) return false;
    }
    return true;
  };
  while (!(await scheduler.run("query", visitSome)));
  if (!isDone) throw abortError(signal);
  return isEnd;
}

/** Longest uninterrupted time for a response, in milliseconds. */
const sliceMs = 5;

/** Returns the error for an aborted call: the reason of the signal, e.g. that the client's deadline has passed. */
export function abortError({ reason }: AbortSignal): ConnectError {
  if (reason instanceof ConnectError) return reason;
  return new ConnectError("the watcher is stopping, or the client disconnected", Code.Unavailable);
}
