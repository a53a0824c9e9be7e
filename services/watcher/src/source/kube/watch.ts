import { isRecord } from "@kpng/model/narrowing.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import {
  type ApiRequest,
  failureOfStatus,
  type KubeConnection,
  openResponse,
  type RequestFailure,
  type Resource,
} from "./connection.ts";

/**
 * Sends one watch request and passes its events to `handler` until the watch ends.
 *
 * An ERROR event ends the watch with the failure that it describes, although the HTTP status was 200.
 *
 * The reflector repeats it; `streamList` uses it for a single list.
 */
export async function watchOnce(
  connection: KubeConnection,
  { path, resource, labelSelector, query, timeoutSeconds, silenceMs }: WatchRequest,
  handler: WatchHandler,
  signal: AbortSignal,
): Promise<WatchEnd> {
  const request = { verb: "watch", resource } as const;
  const parameters = new URLSearchParams({
    ...query,
    ...(labelSelector === undefined ? {} : { labelSelector }),
    watch: "true",
    allowWatchBookmarks: "true",
    timeoutSeconds: String(timeoutSeconds),
  });
  const response = await openResponse(connection, { request, path: `${path}?${parameters}`, silenceMs }, signal);
  if (response.kind !== "open") return signal.aborted ? { kind: "closed" } : response;
  const splitter = new LineSplitter();
  try {
    handler.opened();
    for (;;) {
      const chunk = await response.next();
      if (signal.aborted || chunk.kind === "end") return { kind: "closed" };
      if (chunk.kind !== "chunk") return chunk;
      const receivedAtMs = wallClockMs();
      const lines = splitter.split(chunk.bytes);
      if (lines === undefined) return { ...request, kind: "garbled", message: "line too long" };
      const { events, failure } = parseEvents(request, lines);
      if (events.length > 0) handler.receive(events, receivedAtMs);
      if (signal.aborted) return { kind: "closed" };
      if (failure !== undefined) return failure;
    }
  } finally {
    response.close();
  }
}

interface WatchRequest extends Omit<Resource, "kind"> {
  /** Further query parameters: the resourceVersion, or the parameters of a streamed list. */
  readonly query: Readonly<Record<string, string>>;
  /** The server ends the watch after this many seconds. */
  readonly timeoutSeconds: number;
  /**
   * Longest time without a byte, in milliseconds. After it the watch counts as dead.
   *
   * A watch of a kind that does not change is silent until the server ends it: API servers send bookmarks only after
   * an event (1.36: none in two minutes).
   */
  readonly silenceMs: number;
}

/** Decoded event of a watch. */
export type WatchEvent =
  | { readonly kind: "put"; readonly key: string; readonly resourceVersion: string; readonly object: unknown }
  | { readonly kind: "delete"; readonly key: string; readonly resourceVersion: string }
  /** Nothing else changed up to `resourceVersion`. `endsInitial`: a streamed list is complete. */
  | { readonly kind: "bookmark"; readonly resourceVersion: string; readonly endsInitial: boolean };

/** How a watch ended. "closed" is the regular end: by the server's time limit, or because the signal aborted. */
export type WatchEnd = { readonly kind: "closed" } | RequestFailure;

const initialEventsEnd = "k8s.io/initial-events-end";

/** Callbacks of a watch. An exception in one of them ends the watch and reaches the caller. */
interface WatchHandler {
  /** The server answered with status 200. It may still refuse the watch by an ERROR event. */
  opened(): void;
  /**
   * Events that arrived together, at least one. `receivedAtMs` in milliseconds since 1970, with fractions.
   */
  receive(events: readonly WatchEvent[], receivedAtMs: number): void;
}

/** Parses lines up to the first one that is a failure. */
function parseEvents(request: ApiRequest, lines: readonly string[]) {
  const events: WatchEvent[] = [];
  for (const line of lines) {
    const event = parseEvent(request, line);
    if (event !== undefined && "verb" in event) return { events, failure: event };
    if (event !== undefined) events.push(event);
  }
  return { events, failure: undefined };
}

/** Returns undefined for an unknown event type, which is ignored. */
function parseEvent(request: ApiRequest, line: string): WatchEvent | RequestFailure | undefined {
  let event: unknown;
  try {
    event = JSON.parse(line);
  } catch {
    return { ...request, kind: "garbled", message: `a line of ${line.length} characters is not JSON` };
  }
  if (!isRecord(event)) return { ...request, kind: "garbled", message: "an event is not a JSON object" };
  if (event.type === "ERROR") return failureOfStatus(request, event.object, 500);
  const metadata = rawMetadata(event.object);
  if (metadata === undefined) return { ...request, kind: "garbled", message: "an event has no object with metadata" };
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

const newline = 0x0a;

/**
 * Splits the byte stream of a watch into lines. Buffers at most one unfinished line, of at most `maxBytes`, so that a
 * stream without newlines cannot exhaust memory.
 *
 * `watchOnce` parses each line as one event. A list is one JSON text instead, which `ListSplitter` splits.
 */
export class LineSplitter {
  readonly #maxBytes: number;
  #unfinished: Buffer[] = [];
  #unfinishedBytes = 0;

  /** `maxBytes` defaults to 16 MiB: the API server limits objects to about 3 MiB. */
  constructor(maxBytes = 16 << 20) {
    this.#maxBytes = maxBytes;
  }

  /** Returns the non-empty lines that `bytes` completes, or undefined if the unfinished line exceeds the limit. */
  split(bytes: Buffer): readonly string[] | undefined {
    const lines: string[] = [];
    let start = 0;
    for (let end = bytes.indexOf(newline); end >= 0; end = bytes.indexOf(newline, start)) {
      this.#keep(bytes.subarray(start, end));
      const line = this.#finish();
      if (line !== "") lines.push(line);
      start = end + 1;
    }
    this.#keep(bytes.subarray(start));
    return this.#unfinishedBytes > this.#maxBytes ? undefined : lines;
  }

  #keep(part: Buffer): void {
    if (part.length === 0) return;
    this.#unfinished.push(part);
    this.#unfinishedBytes += part.length;
  }

  #finish(): string {
    const line = Buffer.concat(this.#unfinished).toString("utf8");
    this.#unfinished = [];
    this.#unfinishedBytes = 0;
    return line;
  }
}

/**
 * Metadata of an API object, read before (and even if) its kind is decoded. Watches and object caches need its name and
 * resourceVersion to order and to delete objects.
 */
interface RawMetadata {
  /** *Shape:* `namespace/name`, or `/name` for objects without a namespace. Unique within a kind. */
  readonly key: string;
  readonly resourceVersion: string;
  readonly annotations: Readonly<Record<string, unknown>>;
}

/** Returns the metadata of an API object; undefined for a value without metadata. */
export function rawMetadata(object: unknown): RawMetadata | undefined {
  if (!isRecord(object) || !isRecord(object.metadata)) return undefined;
  const { namespace, name, resourceVersion, annotations } = object.metadata;
  return {
    key: `${typeof namespace === "string" ? namespace : ""}/${typeof name === "string" ? name : ""}`,
    resourceVersion: typeof resourceVersion === "string" ? resourceVersion : "",
    annotations: isRecord(annotations) ? annotations : {},
  };
}
