import { isRecord } from "@kpng/model/is-record.ts";
import { waitMs } from "@kpng/process/wait.ts";
import type { KubeConnection } from "../client/connection.ts";
import { openResponse } from "../client/open-response.ts";
import { readTurn } from "../client/read-turns.ts";
import type { RequestFailure } from "../client/request-failure.ts";
import { ListSplitter } from "./list-splitter.ts";
import type { Resource } from "./resource.ts";

/**
 * Lists a collection page by page and passes each object to `receive`.
 *
 * The request has no resourceVersion, so the server returns its newest state, never one older than what we have seen.
 * All pages show the state at the first page. A failed page is retried with fewer objects instead of restarting the
 * list.
 *
 * Errors: the failure of the last attempt; "expired" if the list took longer than the server keeps its history. The
 * objects received until then must be discarded.
 *
 * The reflector calls it where the server does not support `streamList`, and for lists from etcd. Separate from the
 * reflector, which chooses between the two.
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
export interface ListRequest extends Omit<Resource, "kind"> {
  /** Objects per page; undefined requests the whole list in one response. */
  readonly pageSize?: number | undefined;
  /** Longest time without a byte, in milliseconds. The duration of a list that keeps moving is not limited. */
  readonly silenceMs: number;
  /** Delay before a failed page is retried, in milliseconds. Default 1 000. */
  readonly retryMs?: number | undefined;
}

/** Result of a list. `resourceVersion` is where a watch continues. */
export type ListResult = { readonly kind: "listed"; readonly resourceVersion: string } | RequestFailure;

/** Attempts per page, each with half as many objects as the previous one. */
const maxAttempts = 3;

/**
 * Returns the server's current resourceVersion, read by a list of one object.
 *
 * Needed because a watch from a resourceVersion that the server has not reached yet does not fail: after an etcd
 * restore it is silent, and later delivers new events as if nothing were missing.
 *
 * The reflector calls it after a lost connection.
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
