import { Code, ConnectError } from "@connectrpc/connect";
import { formatHash, hashText } from "@kpng/model/wire/digest.ts";

/**
 * Requested page of a list, decoded from the page_size and page_token of a request. The list methods call `readPage`;
 * `collectRows` and `collectGroups` fill the page and call `makePageToken` for the next one. Separate from them, so
 * that one file knows the format of tokens.
 */
export interface Page {
  readonly list: ListName;
  readonly size: number;
  /** Key of the last item of the previous page; "" for the first page. */
  readonly after: string;
}

/** Page sizes of a list method. */
export interface PageLimits {
  readonly defaultSize: number;
  readonly maxSize: number;
}

/** List method that a page belongs to. A token of one list is invalid for the others. */
export type ListName = "services" | "endpoints" | "nodes" | "subscribers" | "changes" | "node-endpoints";

/** Lists whose keys are numbers. */
const numbered: ReadonlySet<ListName> = new Set(["subscribers", "changes"]);

/** Limits of most lists. A response is encoded in one turn of the event loop: 1 000 Services block it for 10 ms. */
const listLimits: PageLimits = { defaultSize: 500, maxSize: 1_000 };

/** Decodes page_size and page_token of a request. Errors: INVALID_ARGUMENT if one is invalid. */
export function readPage(
  list: ListName,
  request: { pageSize: number; pageToken: string },
  limits: PageLimits = listLimits,
): Page {
  if (request.pageSize > limits.maxSize) {
    throw new ConnectError(
      `page_size ${request.pageSize} exceeds the limit of ${limits.maxSize}`,
      Code.InvalidArgument,
    );
  }
  const size = request.pageSize === 0 ? limits.defaultSize : request.pageSize;
  return { list, size, after: readPageToken(list, request.pageToken) };
}

/**
 * Returns the token for the page after the item with this key; "" after the last page. Tokens are valid for all
 * replicas, and after the item was deleted.
 *
 * *Shape:* `hash.key`. The hash detects invalid tokens.
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
    `invalid page_token "${shown}": use the next_page_token of the previous page, or leave it empty`,
    Code.InvalidArgument,
  );
}
