import { isRecord } from "@kpng/model/narrowing.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { type KubeConnection, openResponse, type RequestFailure, type Resource, readTurn } from "./connection.ts";
import { type WatchEvent, watchOnce } from "./watch.ts";

/**
 * Lists a collection page by page and passes each object to `receive`.
 *
 * The request has no resourceVersion, so the server returns its newest state, never one older than what we have seen.
 * All pages show the state at the first page. A failed page is retried with fewer objects instead of restarting the
 * list.
 *
 * Errors: the failure of the last attempt; "expired" if the list took longer than the server keeps its history. The
 * objects received until then must be discarded.
 */
export async function listPages(
  connection: KubeConnection,
  request: ListRequest,
  receive: (object: unknown) => void,
  signal: AbortSignal,
): Promise<ListResult> {
  let { pageSize } = request;
  let token = "";
  let resourceVersion: string | undefined;
  for (let attempt = 1; ; ) {
    const page = await getPage(connection, request, pageSize, token, signal);
    if (page.kind !== "page") {
      if (!isRetryable(page) || attempt === maxAttempts || signal.aborted) return page;
      attempt += 1;
      pageSize = pageSize === undefined ? undefined : Math.max(1, Math.floor(pageSize / 2));
      await waitMs(request.retryMs ?? 1_000, signal);
      continue;
    }
    attempt = 1;
    resourceVersion ??= page.resourceVersion;
    for (const item of page.items) {
      await readTurn();
      if (signal.aborted) break;
      receive(item);
    }
    if (page.token === "") return { kind: "listed", resourceVersion };
    token = page.token;
  }
}

/** List of a collection, for `listPages` and `streamList`. */
interface ListRequest extends Omit<Resource, "kind"> {
  /** Objects per page; undefined requests the whole list in one response. */
  readonly pageSize?: number | undefined;
  /** Longest time without a byte, in milliseconds. The duration of a list that keeps moving is not limited. */
  readonly silenceMs: number;
  /** Delay before a failed page is retried, in milliseconds. Default 1 000. */
  readonly retryMs?: number | undefined;
}

/** Result of a list. `resourceVersion` is where a watch continues. */
type ListResult = { readonly kind: "listed"; readonly resourceVersion: string } | RequestFailure;

/** Attempts per page, each with half as many objects as the previous one. */
const maxAttempts = 3;

/**
 * Returns the server's current resourceVersion, read by a list of one object.
 *
 * Needed because a watch from a resourceVersion that the server has not reached yet does not fail: after an etcd
 * restore it is silent, and later delivers new events as if nothing were missing.
 */
export async function currentResourceVersion(
  connection: KubeConnection,
  request: ListRequest,
  signal: AbortSignal,
): Promise<ListResult> {
  const page = await getPage(connection, request, 1, "", signal);
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
  { path, resource, labelSelector, silenceMs }: ListRequest,
  pageSize: number | undefined,
  token: string,
  signal: AbortSignal,
): Promise<Page | RequestFailure> {
  const request = { verb: "list", resource } as const;
  const query = new URLSearchParams(labelSelector === undefined ? {} : { labelSelector });
  if (pageSize !== undefined) query.set("limit", String(pageSize));
  if (token !== "") query.set("continue", token);
  const response = await openResponse(connection, { request, path: `${path}?${query}`, silenceMs }, signal);
  if (response.kind !== "open") return response;
  const splitter = new ListSplitter();
  const items: unknown[] = [];
  const garbled = { ...request, kind: "garbled", message: "the body is not a list" } as const;
  try {
    for (;;) {
      const chunk = await response.next();
      if (chunk.kind === "end") break;
      if (chunk.kind !== "chunk") return chunk;
      for (const text of splitter.split(chunk.bytes)) items.push(JSON.parse(text));
    }
    return toPage(JSON.parse(splitter.end()), items) ?? garbled;
  } catch (error) {
    if (error instanceof SyntaxError) return garbled;
    throw error;
  } finally {
    response.close();
  }
}

/** `list` is the list without its items. */
function toPage(list: unknown, items: readonly unknown[]): Page | undefined {
  if (!isRecord(list) || !isRecord(list.metadata)) return undefined;
  const { resourceVersion, continue: token } = list.metadata;
  if (typeof resourceVersion !== "string" || resourceVersion === "") return undefined;
  // The server may omit the field for an empty collection.
  const others = list.items ?? [];
  if (!Array.isArray(others) || others.length > 0) return undefined;
  return { kind: "page", items, resourceVersion, token: typeof token === "string" ? token : "" };
}

function isRetryable(failure: RequestFailure): boolean {
  return failure.kind === "refused" ? failure.status === 429 || failure.status >= 500 : failure.kind !== "expired";
}

/**
 * Splits the JSON text of a list, chunk by chunk, into the texts of its items and the text around them. `listPages`
 * parses each item by itself: a page of 500 EndpointSlices is up to 15 MB, and parsing it as a whole would block the
 * event loop for 0.1 s.
 *
 * It only looks for the bounds of the items; `JSON.parse` then finds whatever is invalid. A streaming JSON parser would
 * take ten times the CPU time of `JSON.parse`.
 *
 * *Bound:* one item and the text around the items. *Cost:* about 3 ms for 1 MB.
 */
export class ListSplitter {
  readonly #around: Buffer[] = [];
  #item: Buffer[] = [];
  #depth = 0;
  #isInString = false;
  #isEscaped = false;
  /** The last string outside all inner values: the name of a field of the list. */
  #field = "";
  #isInItems = false;
  #isInItem = false;

  /** Takes the next chunk of the text. Returns the items that it completes. */
  split(chunk: Buffer): readonly string[] {
    const items: string[] = [];
    let from = 0;
    for (let index = 0; index < chunk.length; index += 1) {
      const byte = chunk[index];
      if (this.#isInString) {
        if (this.#isEscaped) this.#isEscaped = false;
        else if (byte === backslash) this.#isEscaped = true;
        else if (byte === quote) this.#isInString = false;
        else if (this.#depth === 1) this.#field += String.fromCharCode(byte ?? 0);
      } else if (byte === quote) {
        this.#isInString = true;
        if (this.#depth === 1) this.#field = "";
      } else if (byte === openBrace || byte === openBracket) {
        if (this.#isInItems && !this.#isInItem && this.#depth === 2) {
          this.#isInItem = true;
          this.#around.push(chunk.subarray(from, index));
          from = index;
        }
        this.#depth += 1;
        if (byte === openBracket && this.#depth === 2 && this.#field === "items") this.#isInItems = true;
      } else if (byte === closeBrace || byte === closeBracket) {
        this.#depth -= 1;
        if (this.#depth === 1) this.#isInItems = false;
        if (this.#isInItem && this.#depth === 2) {
          this.#isInItem = false;
          this.#item.push(chunk.subarray(from, index + 1));
          items.push(Buffer.concat(this.#item).toString("utf8"));
          this.#item = [];
          from = index + 1;
        }
      } else if (byte === comma && this.#isInItems && !this.#isInItem) {
        // The commas between the items are dropped: `end` returns the list without items.
        this.#around.push(chunk.subarray(from, index));
        from = index + 1;
      }
    }
    (this.#isInItem ? this.#item : this.#around).push(chunk.subarray(from));
    return items;
  }

  /** Returns the text of the list without its items, `{"metadata":{…},"items":[]}`, after the last chunk. */
  end(): string {
    return Buffer.concat([...this.#around, ...this.#item]).toString("utf8");
  }
}

const quote = 0x22;
const comma = 0x2c;
const openBracket = 0x5b;
const backslash = 0x5c;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/**
 * Lists a collection as a stream of watch events and passes each object to `add`, also one that changes while the list
 * is sent; `remove` gets the keys of those that are deleted meanwhile. The reflector prefers it to
 * `listPages`.
 *
 * The stream ends with the list. The following watch is a request of its own, because its time limit is chosen to
 * detect dead connections.
 *
 * Errors: as for `listPages`; "garbled" if the server does not support streamed lists and started an ordinary watch.
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
interface ListReceiver {
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
