import { oneLine } from "./terminal-text.ts";

/** A column of a table. `output.ts` prints lists of messages with it; `explain` and `top` also print smaller tables. */
export interface Column<T> {
  /** In capitals, as in kubectl. */
  readonly title: string;
  /** Text of a row; "" is shown as {@link placeholder}. */
  readonly cell: (row: T) => string;
  /** Default "-". */
  readonly placeholder?: string | undefined;
  /** Shown only with `-o wide`. */
  readonly isWide?: boolean | undefined;
}

const gap = "   ";

/**
 * Formats rows as kubectl does: left-aligned columns, as wide as their widest cell, with three spaces between them.
 *
 * `widths` are minimum widths; the call updates them, so that later rows of a watch align with earlier ones.
 *
 * Separate from `output.ts`, which converts messages of the inspection API: this file knows only rows of text.
 */
export function formatTable<T>(
  columns: readonly Column<T>[],
  rows: readonly T[],
  hasHeaders: boolean,
  widths: number[] = [],
): string {
  const cells = rows.map((row) => columns.map(({ cell, placeholder = "-" }) => oneLine(cell(row)) || placeholder));
  if (hasHeaders) cells.unshift(columns.map(({ title }) => title));
  for (const line of cells) {
    for (const [index, text] of line.entries()) widths[index] = Math.max(widths[index] ?? 0, text.length);
  }
  const formatLine = (line: readonly string[]): string =>
    line
      .map((text, index) => text.padEnd(widths[index] ?? 0))
      .join(gap)
      .trimEnd();
  return cells.map((line) => `${formatLine(line)}\n`).join("");
}
