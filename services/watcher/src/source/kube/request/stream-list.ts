import type { KubeConnection } from "../client/connection.ts";
import type { RequestFailure } from "../client/request-failure.ts";
import type { ListRequest, ListResult } from "./list-pages.ts";
import { type WatchEvent, watchOnce } from "./watch-once.ts";

/**
 * Lists a collection as a stream of watch events and passes each object to `add`, also one that changes while the list
 * is sent; `remove` gets the keys of those that are deleted meanwhile. The reflector prefers it to
 * `listPages`.
 *
 * The stream ends with the list. The following watch is a request of its own, because its time limit is chosen to
 * detect dead connections.
 *
 * Errors: as for `listPages`; "garbled" if the server does not support streamed lists and started an ordinary watch.
 *
 * Separate from the reflector, which chooses between it and `listPages`.
 */
export async function streamList(
  connection: KubeConnection,
  { path, resource, labelSelector, silenceMs }: ListRequest,
  { add, remove }: ListReceiver,
  signal: AbortSignal,
): Promise<ListResult> {
  const stop = new AbortController();
  let result: ListResult | undefined;
  const receiveEvent = (event: WatchEvent): void => {
    if (result !== undefined) return;
    if (event.kind === "put") add(event.object);
    if (event.kind === "delete") remove(event.key);
    if (event.kind !== "bookmark") return;
    result = event.endsInitial
      ? { kind: "listed", resourceVersion: event.resourceVersion }
      : { verb: "watch", resource, kind: "garbled", message: "bookmark without k8s.io/initial-events-end" };
    stop.abort();
  };
  const end = await watchOnce(
    connection,
    { path, resource, labelSelector, query: watchListQuery, timeoutSeconds, silenceMs },
    { opened: () => undefined, receive: (events) => events.forEach(receiveEvent) },
    AbortSignal.any([signal, stop.signal]),
  );
  if (result !== undefined) return result;
  if (end.kind !== "closed") return end;
  return { verb: "watch", resource, kind: "lost", message: "the stream ended before the list was complete" };
}

/** Receives the objects of a streamed list, and the keys of those that are deleted meanwhile. */
export interface ListReceiver {
  readonly add: (object: unknown) => void;
  readonly remove: (key: string) => void;
}

/**
 * Parameters that make a watch start with all existing objects as ADDED events, followed by a bookmark with the
 * annotation `k8s.io/initial-events-end`. Neither side buffers the whole list.
 *
 * Source: KEP-3157. The API server needs an etcd with progress requests (3.4.31, 3.5.13 or newer).
 */
const watchListQuery: Readonly<Record<string, string>> = {
  sendInitialEvents: "true",
  resourceVersionMatch: "NotOlderThan",
};

/** The server ends the stream after this many seconds. The reflector lists longer collections by pages. */
const timeoutSeconds = 600;

/**
 * True if a failed `streamList` means that the server does not support streamed lists, as opposed to a server in
 * trouble. Older servers refuse the parameters (400, 422) or ignore them. A server on an old etcd accepts them and
 * sends an ERROR event with code 500.
 *
 * True for 403 as well: the paged list then reports which permission is missing.
 */
export function isWatchListRefusal(failure: RequestFailure): boolean {
  if (failure.kind === "refused") return [400, 403, 405, 422, 500].includes(failure.status);
  return failure.kind === "silent" || failure.kind === "garbled";
}
