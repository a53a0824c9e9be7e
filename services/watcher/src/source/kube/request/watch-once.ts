import { isRecord } from "@kpng/model/is-record.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { KubeConnection } from "../client/connection.ts";
import { openExchange } from "../client/open-response.ts";
import { type Asked, type Failure, failureOfStatus } from "../client/request-failure.ts";
import { LineCutter } from "./line-splitter.ts";
import { rawMetadata } from "./raw-object.ts";

export interface WatchRequest {
  /** Path of the collection, e.g. "/api/v1/services". */
  readonly path: string;
  /** *Shape:* `services`, `endpointslices.discovery.k8s.io`. */
  readonly resource: string;
  /** Further parameters: resourceVersion, or those of a watch list. */
  readonly query: Readonly<Record<string, string>>;
  /** After this long the server ends the watch, in seconds. */
  readonly timeoutSeconds: number;
  /**
   * Longest time without a byte, in milliseconds; beyond it the watch counts as dead.
   *
   * A watch of a kind that does not change is silent until the server ends it: API servers send bookmarks only after
   * an event (1.36: none in two minutes).
   */
  readonly silenceMs: number;
}

/** What the API server says in a watch. */
export type WatchEvent =
  | { readonly kind: "put"; readonly key: string; readonly resourceVersion: string; readonly object: unknown }
  | { readonly kind: "delete"; readonly key: string; readonly resourceVersion: string }
  /** Nothing changed up to here. `endsInitial`: the initial events of a watch list are complete. */
  | { readonly kind: "bookmark"; readonly resourceVersion: string; readonly endsInitial: boolean };

/** "closed": in order, by the server's time limit or by an aborted signal. */
export type WatchEnd = { readonly kind: "closed" } | Failure;

const initialEventsEnd = "k8s.io/initial-events-end";

/** Who takes what a watch brings; what it throws ends the watch and is thrown on. */
export interface WatchTaker {
  /** The server accepted the watch; it may still refuse it by an ERROR event. */
  opened(): void;
  /** Events that came together, at least one; `receivedAtMs` in milliseconds since 1970, with fractions. */
  take(events: readonly WatchEvent[], receivedAtMs: number): void;
}

/**
 * Watches a collection until the watch ends.
 *
 * An ERROR event ends it with what the server says in it, although the HTTP status was 200.
 */
export async function watchOnce(
  connection: KubeConnection,
  request: WatchRequest,
  taker: WatchTaker,
  signal: AbortSignal,
): Promise<WatchEnd> {
  const asked = { verb: "watch", resource: request.resource } as const;
  const query = new URLSearchParams({
    ...request.query,
    watch: "true",
    allowWatchBookmarks: "true",
    timeoutSeconds: String(request.timeoutSeconds),
  });
  const path = `${request.path}?${query}`;
  const exchange = await openExchange(connection, { asked, path, silenceMs: request.silenceMs }, signal);
  if (exchange.kind !== "open") return signal.aborted ? { kind: "closed" } : exchange;
  const cutter = new LineCutter();
  try {
    taker.opened();
    for (;;) {
      const piece = await exchange.next();
      if (signal.aborted || piece.kind === "end") return { kind: "closed" };
      if (piece.kind !== "piece") return piece;
      const receivedAtMs = wallClockMs();
      const lines = cutter.cut(piece.bytes);
      if (lines === undefined) return { ...asked, kind: "garbled", message: "a line without an end" };
      const events: WatchEvent[] = [];
      let failure: Failure | undefined;
      for (const line of lines) {
        const event = parseEvent(asked, line);
        if (event === undefined) continue;
        if ("verb" in event) {
          failure = event;
          break;
        }
        events.push(event);
      }
      if (events.length > 0) taker.take(events, receivedAtMs);
      if (signal.aborted) return { kind: "closed" };
      if (failure !== undefined) return failure;
    }
  } finally {
    exchange.end();
  }
}

/** Returns undefined for a type of event that is not known. */
function parseEvent(asked: Asked, line: string): WatchEvent | Failure | undefined {
  let event: unknown;
  try {
    event = JSON.parse(line);
  } catch {
    return { ...asked, kind: "garbled", message: `a line of ${line.length} characters is no JSON` };
  }
  if (!isRecord(event)) return { ...asked, kind: "garbled", message: "an event is no object" };
  if (event.type === "ERROR") return failureOfStatus(asked, event.object, 500);
  const metadata = rawMetadata(event.object);
  if (metadata === undefined) return { ...asked, kind: "garbled", message: "an event has no object" };
  const { key, resourceVersion, annotations } = metadata;
  switch (event.type) {
    case "ADDED":
    case "MODIFIED":
      return { kind: "put", key, resourceVersion, object: event.object };
    case "DELETED":
      return { kind: "delete", key, resourceVersion };
    case "BOOKMARK":
      return { kind: "bookmark", resourceVersion, endsInitial: annotations[initialEventsEnd] === "true" };
    default:
      return undefined;
  }
}
