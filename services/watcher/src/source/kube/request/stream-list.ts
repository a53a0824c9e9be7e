import type { KubeConnection } from "../client/connection.ts";
import type { Failure } from "../client/request-failure.ts";
import type { ListEnd, ListRequest } from "./list-pages.ts";
import { type WatchEvent, watchOnce } from "./watch-once.ts";

/**
 * Parameters that make a watch begin with all objects as ADDED events, closed by a bookmark with the annotation
 * `k8s.io/initial-events-end`: a list that neither side holds as a whole.
 *
 * Source: KEP-3157; the API server needs an etcd that it may ask for progress (3.4.31, 3.5.13 or newer).
 */
const watchListQuery: Readonly<Record<string, string>> = {
  sendInitialEvents: "true",
  resourceVersionMatch: "NotOlderThan",
};

/** The server cuts the stream after this long, in seconds; one that takes longer is listed by pages. */
const timeoutSeconds = 600;

/**
 * Lists a collection as a stream of events and hands each object to `take`.
 *
 * The stream ends with the list: the watch that follows is a request of its own, whose time limit is made for noticing
 * that it is dead.
 *
 * Errors: as for `listAll`; "garbled" if the server knows no streamed lists and began an ordinary watch.
 */
export async function streamList(
  connection: KubeConnection,
  { path, resource, silenceMs }: ListRequest,
  take: (object: unknown) => void,
  signal: AbortSignal,
): Promise<ListEnd> {
  const stop = new AbortController();
  let listed: ListEnd | undefined;
  const look = (event: WatchEvent): void => {
    if (listed !== undefined) return;
    if (event.kind === "put") take(event.object);
    if (event.kind !== "bookmark") return;
    listed = event.endsInitial
      ? { kind: "listed", resourceVersion: event.resourceVersion }
      : { verb: "watch", resource, kind: "garbled", message: "the list has no end" };
    stop.abort();
  };
  const end = await watchOnce(
    connection,
    { path, resource, query: watchListQuery, timeoutSeconds, silenceMs },
    { opened: () => undefined, take: (events) => events.forEach(look) },
    AbortSignal.any([signal, stop.signal]),
  );
  if (listed !== undefined) return listed;
  if (end.kind !== "closed") return end;
  return { verb: "watch", resource, kind: "lost", message: "the stream ended before the list did" };
}

/**
 * True if the server says that it has no streamed lists, rather than that it has trouble: an older one refuses the
 * parameters (400, 422) or ignores them, one on an old etcd accepts them and sends an ERROR event with code 500.
 *
 * 403 counts too: the paged list then says which permission is missing.
 */
export function isWatchListRefusal(failure: Failure): boolean {
  if (failure.kind === "refused") return [400, 403, 405, 422, 500].includes(failure.status);
  return failure.kind === "silent" || failure.kind === "garbled";
}
