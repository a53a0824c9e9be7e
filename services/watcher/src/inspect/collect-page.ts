import { makePageToken, type Page } from "./page.ts";
import { visitInTurns } from "./visit-in-turns.ts";

/** A page of rows, and the token of the next page; "" after the last one. */
export interface CollectedPage<R> {
  readonly rows: R[];
  readonly nextPageToken: string;
}

/**
 * Collects the rows of items until the page is full. Items are in the order of their keys and begin after the previous
 * page. `rowOf` returns undefined for items that do not match.
 *
 * The list methods call it and {@link collectGroups}. Separate from `page.ts`, which decodes the request and makes the
 * tokens, because this file also spreads the work over turns of the event loop.
 */
export async function collectRows<T, R>(
  page: Page,
  items: Iterable<T>,
  { rowOf, keyOf }: { readonly rowOf: (item: T) => R | undefined; readonly keyOf: (row: R) => string },
  signal: AbortSignal,
): Promise<CollectedPage<R>> {
  const rows: R[] = [];
  let isFull = false;
  const visit = (item: T): boolean => {
    const row = rowOf(item);
    isFull = row !== undefined && rows.length === page.size;
    if (row !== undefined && !isFull) rows.push(row);
    return !isFull;
  };
  await visitInTurns(items, visit, signal);
  const last = rows.at(-1);
  return { rows, nextPageToken: makePageToken(page.list, isFull && last !== undefined ? keyOf(last) : "") };
}

/** Collects all rows of one key after the other until the page is full. The last key may exceed the page size. */
export async function collectGroups<R>(
  page: Page,
  keys: readonly string[],
  rowsOf: (key: string) => readonly R[],
  signal: AbortSignal,
): Promise<CollectedPage<R>> {
  const rows: R[] = [];
  let lastKey = "";
  const visit = (key: string): boolean => {
    rows.push(...rowsOf(key));
    lastKey = key;
    return rows.length < page.size;
  };
  await visitInTurns(keys, visit, signal);
  return { rows, nextPageToken: makePageToken(page.list, lastKey === keys.at(-1) ? "" : lastKey) };
}
