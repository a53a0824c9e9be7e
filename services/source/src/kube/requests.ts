import { StringDecoder } from "node:string_decoder";
import { setImmediate as nextTurn } from "node:timers/promises";
import { isRecord } from "@kpng/model/narrowing.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import {
  type ApiRequest,
  failureOfStatus,
  type KubeConnection,
  parseJson,
  type RequestFailure,
  type Resource,
  readBody,
  readJson,
} from "./connection.ts";

/** Result of a list. `resourceVersion` is where a watch continues. */
type ListResult = { readonly kind: "listed"; readonly resourceVersion: string } | RequestFailure;

/**
 * Lists a collection page by page, and passes each object to `receive`. The event loop gets a turn after every 50
 * objects. All pages show the state that was the server's newest when it served the first page.
 *
 * The result is "expired" if the list took longer than the server keeps its history. After a failure, the objects
 * received so far must be discarded.
 */
export async function listObjects(
  connection: KubeConnection,
  resource: Resource,
  { pageSize = standardPageSize, listSilenceMs = standardSilenceMs }: ListLimits,
  receive: (object: unknown) => void,
  signal: AbortSignal,
): Promise<ListResult> {
  let resourceVersion: string | undefined;
  for (let token: unknown = ""; ; ) {
    const page = await getPage(connection, resource, { limit: pageSize, token, silenceMs: listSilenceMs }, signal);
    if (page.kind !== "page") return page;
    resourceVersion ??= page.resourceVersion;
    for (const [index, item] of page.items.entries()) {
      if (index % objectsPerTurn === 0) await nextTurn();
      receive(item);
    }
    token = page.token;
    if (token === "") return { kind: "listed", resourceVersion };
  }
}

/** Limits of a list; tests shorten them. */
export interface ListLimits {
  /** Objects per page. Default 100. */
  readonly pageSize?: number | undefined;
  /** Maximum time without a byte, in milliseconds. Default 60 000. */
  readonly listSilenceMs?: number | undefined;
}

/**
 * Objects per page. A page is parsed in one go, and nothing else runs meanwhile: 33 ms for 100 full slices, 230 ms for
 * client-go's 500.
 */
const standardPageSize = 100;

const standardSilenceMs = 60_000;

/** Number of objects to decode before the event loop gets a turn; decoding them takes a few milliseconds. */
const objectsPerTurn = 50;

/**
 * Reads the server's current resourceVersion by listing one object. A watch cannot determine it: a watch from a version
 * that a restored etcd has not yet reached stays silent, and later omits the changes that it missed.
 */
export async function currentResourceVersion(
  connection: KubeConnection,
  resource: Resource,
  silenceMs: number | undefined,
  signal: AbortSignal,
): Promise<ListResult> {
  const limits = { limit: 1, token: "", silenceMs: silenceMs ?? standardSilenceMs };
  const page = await getPage(connection, resource, limits, signal);
  return page.kind === "page" ? { kind: "listed", resourceVersion: page.resourceVersion } : page;
}

interface Page {
  readonly kind: "page";
  readonly items: readonly unknown[];
  readonly resourceVersion: string;
  /** Continue token of the next page; "" after the last page. */
  readonly token: string;
}

async function getPage(
  connection: KubeConnection,
  { path, resource }: Resource,
  { limit, token, silenceMs }: { readonly limit: number; readonly token: unknown; readonly silenceMs: number },
  signal: AbortSignal,
): Promise<Page | RequestFailure> {
  const request = { verb: "list", resource } as const;
  const query = new URLSearchParams({
    limit: String(limit),
    ...(token === "" ? {} : { continue: String(token) }),
  });
  const result = await readJson(connection, { request, path: `${path}?${query}`, silenceMs }, signal);
  if (result.kind !== "object") return result;
  // The server may omit the items of an empty collection.
  const { metadata, items } = result.object;
  const { resourceVersion, continue: next } = isRecord(metadata) ? metadata : {};
  const list = items ?? [];
  if (!Array.isArray(list) || typeof resourceVersion !== "string" || resourceVersion === "") {
    return { ...request, kind: "garbled", message: "the body is not a list" };
  }
  return { kind: "page", items: list, resourceVersion, token: typeof next === "string" ? next : "" };
}

/**
 * Sends one watch request and passes its events to `handler` until the watch ends. An ERROR event ends the watch with
 * the failure that the event describes, although the HTTP status was 200.
 */
export async function watchOnce(
  connection: KubeConnection,
  { path, resource, resourceVersion, timeoutSeconds, silenceMs }: WatchRequest,
  handler: WatchHandler,
  signal: AbortSignal,
): Promise<WatchEnd> {
  const request = { verb: "watch", resource } as const;
  const query = new URLSearchParams({
    resourceVersion,
    watch: "true",
    allowWatchBookmarks: "true",
    timeoutSeconds: String(timeoutSeconds),
  });
  const decoder = new StringDecoder("utf8");
  let unfinished = "";
  for await (const chunk of readBody(connection, { request, path: `${path}?${query}`, silenceMs }, signal)) {
    if (signal.aborted) break;
    if (!Buffer.isBuffer(chunk)) return chunk;
    if (chunk.length === 0) {
      handler.opened();
      continue;
    }
    const receivedAtMs = wallClockMs();
    const lines = (unfinished + decoder.write(chunk)).split("\n");
    unfinished = lines.pop() ?? "";
    if (unfinished.length > maxLineLength) return { ...request, kind: "garbled", message: "line too long" };
    const events: WatchEvent[] = [];
    let failure: RequestFailure | undefined;
    for (const line of lines) {
      const event = line === "" ? undefined : parseEvent(request, line);
      if (event !== undefined && "verb" in event) {
        failure = event;
        break;
      }
      if (event !== undefined) events.push(event);
    }
    if (events.length > 0) handler.receive(events, receivedAtMs);
    if (signal.aborted) break;
    if (failure !== undefined) return failure;
    // One read from a socket fills many chunks, which would follow each other without giving the event loop a turn.
    await nextTurn();
  }
  return { kind: "closed" };
}

/**
 * Maximum length of a line in a watch, in characters. It only bounds memory: the API server limits objects to about
 * 3 MiB.
 */
const maxLineLength = 16 << 20;

interface WatchRequest extends Resource {
  readonly resourceVersion: string;
  /** Number of seconds after which the server ends the watch. */
  readonly timeoutSeconds: number;
  /** Maximum time without a byte, in milliseconds. */
  readonly silenceMs: number;
}

/** Decoded event of a watch. */
export type WatchEvent =
  | { readonly kind: "put"; readonly key: string; readonly resourceVersion: string; readonly object: unknown }
  | { readonly kind: "delete"; readonly key: string; readonly resourceVersion: string }
  /** No further changes happened up to `resourceVersion`. */
  | { readonly kind: "bookmark"; readonly resourceVersion: string };

/** How a watch ended. "closed" is the regular end: by the server's time limit, or because the signal aborted. */
type WatchEnd = { readonly kind: "closed" } | RequestFailure;

/** Callbacks of a watch. An exception in one of them ends the watch and reaches the caller. */
interface WatchHandler {
  /** Called when the server has answered with status 200. It may still refuse the watch with an ERROR event. */
  opened(): void;
  /**
   * Called with the events that arrived together (at least one). `receivedAtMs` is in fractional milliseconds since
   * 1970.
   */
  receive(events: readonly WatchEvent[], receivedAtMs: number): void;
}

/** Parses an event; undefined for an unknown event type, which is ignored. */
function parseEvent(request: ApiRequest, line: string): WatchEvent | RequestFailure | undefined {
  const event = parseJson(line);
  if (!isRecord(event)) {
    return { ...request, kind: "garbled", message: `a line of ${line.length} characters is not a JSON object` };
  }
  if (event.type === "ERROR") return failureOfStatus(request, event.object, 500);
  if (!isRecord(event.object) || !isRecord(event.object.metadata)) {
    return { ...request, kind: "garbled", message: "an event has no object with metadata" };
  }
  const key = objectKey(event.object);
  const { resourceVersion } = event.object.metadata;
  // A watch from "" would begin with any state, and miss deletions.
  if (typeof resourceVersion !== "string" || resourceVersion === "") {
    return { ...request, kind: "garbled", message: "an event has no resourceVersion" };
  }
  switch (event.type) {
    case "ADDED":
    case "MODIFIED":
      return { kind: "put", key, resourceVersion, object: event.object };
    case "DELETED":
      return { kind: "delete", key, resourceVersion };
    case "BOOKMARK":
      return { kind: "bookmark", resourceVersion };
    default:
      return undefined;
  }
}

/**
 * Returns the key of an API object, even if the rest of the object is invalid. *Shape:* `namespace/name`, or `/name`.
 */
export function objectKey(object: unknown): string {
  const { namespace, name } = isRecord(object) && isRecord(object.metadata) ? object.metadata : {};
  return `${typeof namespace === "string" ? namespace : ""}/${typeof name === "string" ? name : ""}`;
}
