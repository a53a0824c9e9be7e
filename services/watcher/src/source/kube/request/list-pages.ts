import { isRecord } from "@kpng/model/is-record.ts";
import { waitMs } from "@kpng/process/wait.ts";
import type { KubeConnection } from "../client/connection.ts";
import { openExchange } from "../client/open-response.ts";
import type { Failure } from "../client/request-failure.ts";

export interface ListRequest {
  /** Path of the collection, e.g. "/api/v1/services". */
  readonly path: string;
  /** *Shape:* `services`, `endpointslices.discovery.k8s.io`. */
  readonly resource: string;
  /** Objects per page; undefined asks for all in one answer. */
  readonly pageSize?: number | undefined;
  /** Longest time without a byte, in milliseconds. A list may take as long as it likes while it moves. */
  readonly silenceMs: number;
  /** Wait before a page is asked for again, in milliseconds. Default 1 000. */
  readonly retryMs?: number | undefined;
}

export type ListEnd = { readonly kind: "listed"; readonly resourceVersion: string } | Failure;

/** Times that one page is asked for, each with half as many objects. */
const maxTries = 3;

/**
 * Lists a collection and hands each object to `take`.
 *
 * The resourceVersion is left out: the answer is then the newest state, never one from before what we have seen. All
 * pages are of the state that the first one saw. A page that fails is asked for again, smaller, rather than the whole
 * list.
 *
 * Errors: the failure of the page that did not come; "expired" if the list took longer than the server remembers.
 * Objects taken until then are of no use.
 */
export async function listAll(
  connection: KubeConnection,
  request: ListRequest,
  take: (object: unknown) => void,
  signal: AbortSignal,
): Promise<ListEnd> {
  let { pageSize } = request;
  let token = "";
  let resourceVersion: string | undefined;
  for (let tries = 1; ; ) {
    const page = await getPage(connection, request, pageSize, token, signal);
    if (page.kind !== "page") {
      if (!isWorthARetry(page) || tries === maxTries || signal.aborted) return page;
      tries += 1;
      pageSize = pageSize === undefined ? undefined : Math.max(1, Math.floor(pageSize / 2));
      await waitMs(request.retryMs ?? 1_000, signal);
      continue;
    }
    tries = 1;
    resourceVersion ??= page.resourceVersion;
    for (const item of page.items) take(item);
    if (page.token === "") return { kind: "listed", resourceVersion };
    token = page.token;
  }
}

/**
 * Asks for the resourceVersion that the server is at now, by a list of one object.
 *
 * A watch from a resourceVersion that the server has yet to reach, because its etcd was restored from a backup or
 * emptied, is no error: it is silent, and then brings what comes later, as if nothing were missing.
 */
export async function currentResourceVersion(
  connection: KubeConnection,
  request: ListRequest,
  signal: AbortSignal,
): Promise<ListEnd> {
  const page = await getPage(connection, request, 1, "", signal);
  return page.kind === "page" ? { kind: "listed", resourceVersion: page.resourceVersion } : page;
}

interface Page {
  readonly kind: "page";
  readonly items: readonly unknown[];
  readonly resourceVersion: string;
  /** Where to go on; "" after the last page. */
  readonly token: string;
}

async function getPage(
  connection: KubeConnection,
  { path, resource, silenceMs }: ListRequest,
  pageSize: number | undefined,
  token: string,
  signal: AbortSignal,
): Promise<Page | Failure> {
  const asked = { verb: "list", resource } as const;
  const query = new URLSearchParams();
  if (pageSize !== undefined) query.set("limit", String(pageSize));
  if (token !== "") query.set("continue", token);
  const exchange = await openExchange(connection, { asked, path: `${path}?${query}`, silenceMs }, signal);
  if (exchange.kind !== "open") return exchange;
  const pieces: Buffer[] = [];
  try {
    for (;;) {
      const piece = await exchange.next();
      if (piece.kind === "end") break;
      if (piece.kind !== "piece") return piece;
      pieces.push(piece.bytes);
    }
  } finally {
    exchange.end();
  }
  return toPage(Buffer.concat(pieces)) ?? { ...asked, kind: "garbled", message: "it is no list" };
}

function toPage(body: Buffer): Page | undefined {
  let list: unknown;
  try {
    list = JSON.parse(body.toString("utf8"));
  } catch {
    return undefined;
  }
  if (!isRecord(list) || !isRecord(list.metadata)) return undefined;
  const { resourceVersion, continue: token } = list.metadata;
  // An empty collection may come without the field.
  const items = list.items ?? [];
  if (typeof resourceVersion !== "string" || resourceVersion === "" || !Array.isArray(items)) return undefined;
  return { kind: "page", items, resourceVersion, token: typeof token === "string" ? token : "" };
}

function isWorthARetry(failure: Failure): boolean {
  return failure.kind === "refused" ? failure.status === 429 || failure.status >= 500 : failure.kind !== "expired";
}
