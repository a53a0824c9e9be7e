import type { CellStyle, Paint } from "./color.ts";
import { oneLine } from "./terminal-text.ts";

/** A column of a table. `T` is the type of a row. */
export interface Column<T> {
  /** In capitals, as in kubectl. */
  readonly title: string;
  /** Text of a row; "" is shown as {@link placeholder}. */
  readonly cell: (row: T) => string;
  /** Default "-". */
  readonly placeholder?: string | undefined;
  /** Shown only with `-o wide`. */
  readonly isWide?: boolean | undefined;
  /** Colour of a row's cell; undefined for none. */
  readonly style?: ((row: T) => CellStyle | undefined) | undefined;
}

const gap = "   ";

/**
 * Formats rows as kubectl does: left-aligned columns, as wide as their widest cell, with three spaces between them. The
 * result has no control characters but line breaks, and the escape sequences of `paint`.
 *
 * `widths` are minimum widths; the call updates them, so that later rows of a watch align with earlier ones.
 *
 * `output.ts` calls it for lists; `explain`, `top`, `trace` and others call it for smaller tables. Separate from
 * `output.ts`, which converts messages of the inspection API: this file knows only rows of text.
 */
export function formatTable<T>(
  columns: readonly Column<T>[],
  rows: readonly T[],
  hasHeaders: boolean,
  widths: number[] = [],
  paint?: Paint,
): string {
  const lines = rows.map((row) =>
    columns.map(({ cell, placeholder = "-", style }) => ({
      text: oneLine(cell(row)) || placeholder,
      style: style?.(row),
    })),
  );
  if (hasHeaders) lines.unshift(columns.map(({ title }) => ({ text: oneLine(title), style: undefined })));
  for (const line of lines) {
    for (const [index, { text }] of line.entries()) widths[index] = Math.max(widths[index] ?? 0, text.length);
  }
  return lines
    .map((line) => {
      const cells = line.map(({ text, style }, index) => {
        const shown = style === undefined || paint === undefined ? text : paint(text, style);
        return shown + " ".repeat((widths[index] ?? 0) - text.length);
      });
      return `${cells.join(gap).trimEnd()}\n`;
    })
    .join("");
}
