/** A column of a table. */
export interface Column<T> {
  /** In capitals, as kubectl's. */
  readonly title: string;
  /** The text of a row; "" is shown as "-", or as {@link none}. */
  readonly cell: (row: T) => string;
  readonly none?: string | undefined;
  /** Only with `-o wide`. */
  readonly isWide?: boolean | undefined;
}

const gap = "   ";

/**
 * Formats rows as kubectl does: left-aligned columns as wide as their widest cell, three spaces between them. `widths` are
 * the least widths, which the ones that were needed replace: so that later rows of a watch stand under the first.
 *
 * Pure but for `widths`.
 */
export function formatTable<T>(
  columns: readonly Column<T>[],
  rows: readonly T[],
  hasTitles: boolean,
  widths: number[] = [],
): string {
  const cells = rows.map((row) => columns.map(({ cell, none = "-" }) => oneLine(cell(row)) || none));
  if (hasTitles) cells.unshift(columns.map(({ title }) => title));
  for (const line of cells) {
    for (const [index, text] of line.entries()) widths[index] = Math.max(widths[index] ?? 0, text.length);
  }
  return cells
    .map(
      (line) =>
        `${line
          .map((text, index) => text.padEnd(widths[index] ?? 0))
          .join(gap)
          .trimEnd()}\n`,
    )
    .join("");
}

/** What a node says of its errors has several lines, and must not be able to move the cursor. */
export function oneLine(text: string): string {
  return text.replaceAll(/\p{Cc}+/gu, " ").trim();
}
