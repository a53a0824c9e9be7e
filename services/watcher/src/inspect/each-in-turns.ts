import { Code, ConnectError } from "@connectrpc/connect";
import { turns } from "../stream/session/turns.ts";

/** How long one piece of a long answer may take, in milliseconds. */
const sliceMs = 5;

/**
 * Calls `visit` for each item until it returns false, some milliseconds at a time and after all that is due to
 * subscribers, so that a question about a big cluster delays no node. Errors: that of `signal`, if it aborts before the
 * end: an answer that lacks something must not look like a whole one.
 */
export async function eachInTurns<T>(
  items: Iterable<T>,
  visit: (item: T) => boolean,
  signal: AbortSignal,
): Promise<void> {
  let isWhole = false;
  const iterator = items[Symbol.iterator]();
  const visitSome = (): boolean => {
    const untilMs = performance.now() + sliceMs;
    while (!signal.aborted) {
      const next = iterator.next();
      isWhole = next.done === true || !visit(next.value);
      if (isWhole) return true;
      if (performance.now() >= untilMs) return false;
    }
    return true;
  };
  // Whatever was begun waits behind those who are to have their view.
  while (!(await turns.run("begin", visitSome)));
  if (!isWhole) throw stopped(signal);
}

/** What to answer once `signal` has aborted: its own reason, such as that the client's deadline is over. */
export function stopped({ reason }: AbortSignal): ConnectError {
  if (reason instanceof ConnectError) return reason;
  return new ConnectError("the watcher stops, or the client is gone", Code.Unavailable);
}
