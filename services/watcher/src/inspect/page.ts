import { Code, ConnectError } from "@connectrpc/connect";
import { formatHash, hashText } from "@kpng/model/wire/hash.ts";

/** A part of a list. */
export interface Page {
  readonly size: number;
  /** Key of the last item of the page before; "" for the first page. */
  readonly after: string;
}

export interface PageLimits {
  readonly standard: number;
  readonly most: number;
}

/** Whose pages they are: a token of one list is none of another. */
export type ListName = "services" | "endpoints" | "nodes" | "subscribers" | "changes" | "node-endpoints";

/** Those whose keys are numbers. */
const numbered: ReadonlySet<ListName> = new Set(["subscribers", "changes"]);

/** A page is encoded in one go: that of a thousand Services takes some 10 ms, in which nothing else happens. */
export const listLimits: PageLimits = { standard: 500, most: 1_000 };

/** Errors: INVALID_ARGUMENT. */
export function readPage(
  list: ListName,
  request: { pageSize: number; pageToken: string },
  limits: PageLimits = listLimits,
): Page {
  if (request.pageSize > limits.most) {
    throw new ConnectError(`page_size is ${request.pageSize} and the limit is ${limits.most}`, Code.InvalidArgument);
  }
  const size = request.pageSize === 0 ? limits.standard : request.pageSize;
  return { size, after: readPageToken(list, request.pageToken) };
}

/**
 * What asks for the items after the one with this key; "" after the last one. Any replica understands it, and it holds
 * also when that item is gone.
 *
 * *Shape:* `hash.key`, so that what is no token is told from a place in the list.
 */
export function makePageToken(list: ListName, key: string): string {
  return key === "" ? "" : `${formatHash(hashText(`${list} ${key}`))}.${key}`;
}

function readPageToken(list: ListName, token: string): string {
  const key = token.slice(token.indexOf(".") + 1);
  const isKey = key === "" || !numbered.has(list) || /^\d{1,18}$/.test(key);
  if (isKey && token === makePageToken(list, key)) return key;
  const shown = token.length > 80 ? `${token.slice(0, 80)}…` : token;
  throw new ConnectError(
    `page_token "${shown}" is none of this method's: it is the next_page_token of the page before, or empty`,
    Code.InvalidArgument,
  );
}
