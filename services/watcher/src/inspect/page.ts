import { Code, ConnectError } from "@connectrpc/connect";

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

/** A page is encoded in one go: that of a thousand Services takes some 10 ms, in which nothing else happens. */
export const listLimits: PageLimits = { standard: 500, most: 1_000 };

/** Errors: INVALID_ARGUMENT. */
export function readPage(request: { pageSize: number; pageToken: string }, limits: PageLimits = listLimits): Page {
  if (request.pageSize > limits.most) {
    throw new ConnectError(`page_size is ${request.pageSize} and the limit is ${limits.most}`, Code.InvalidArgument);
  }
  return { size: request.pageSize === 0 ? limits.standard : request.pageSize, after: request.pageToken };
}

/** As {@link readPage}, for lists whose keys are numbers. Errors: INVALID_ARGUMENT. */
export function readNumberToken({ after }: Page): bigint | undefined {
  if (after === "") return undefined;
  if (!/^\d{1,18}$/.test(after)) {
    throw new ConnectError(`page_token "${after}" is none of this method's`, Code.InvalidArgument);
  }
  return BigInt(after);
}
