import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { oneLine } from "./text.ts";

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
}

/**
 * Columns that show messages of one type as the rows of a table. Commands such as `kpng get services` pass them to
 * `printRows`.
 */
export interface TableSpec<D extends DescMessage> {
  readonly schema: D;
  readonly columns: readonly Column<MessageShape<D>>[];
  /** Name of a row, for `-o name`: `service/default/web`. Absent if rows have no names. */
  readonly nameOf?: ((row: MessageShape<D>) => string) | undefined;
}

const gap = "   ";

/**
 * Formats rows as kubectl does: left-aligned columns, as wide as their widest cell, with three spaces between them. The
 * result has no control characters but line breaks.
 *
 * `widths` are minimum widths; the call updates them, so that later rows of a watch align with earlier ones.
 */
export function formatTable<T>(
  columns: readonly Column<T>[],
  rows: readonly T[],
  hasHeaders: boolean,
  widths: number[] = [],
): string {
  const lines = rows.map((row) => columns.map(({ cell, placeholder = "-" }) => oneLine(cell(row)) || placeholder));
  if (hasHeaders) lines.unshift(columns.map(({ title }) => oneLine(title)));
  for (const line of lines) {
    for (const [index, text] of line.entries()) widths[index] = Math.max(widths[index] ?? 0, text.length);
  }
  return lines
    .map(
      (line) =>
        `${line
          .map((text, index) => text.padEnd(widths[index] ?? 0))
          .join(gap)
          .trimEnd()}\n`,
    )
    .join("");
}

/**
 * Formats fields as `kubectl describe` does: a name and a value a line, values below each other; "<none>" for an empty
 * value. The three commands of this folder call the functions of this file, so that their output looks alike.
 */
export function formatFields(fields: readonly (readonly [name: string, value: string])[]): string {
  const width = Math.max(...fields.map(([name]) => name.length)) + 1;
  return fields.map(([name, value]) => `${`${name}:`.padEnd(width)}  ${oneLine(value) || "<none>"}\n`).join("");
}

/** Formats a table below a title, indented; "<none>" instead of an empty one. */
export function formatSection<D extends DescMessage>(
  title: string,
  { columns }: TableSpec<D>,
  rows: readonly MessageShape<D>[],
): string {
  if (rows.length === 0) return `${title}:  <none>\n`;
  const shown = columns.filter(({ isWide }) => isWide !== true);
  return `${title}:\n${formatTable(shown, rows, true).replaceAll(/^/gm, "  ").trimEnd()}\n`;
}

/** Formats a list below a title, indented; "" for an empty list. */
export function formatList(title: string, lines: readonly string[]): string {
  return lines.length === 0 ? "" : `${title}:\n${lines.map((line) => `  ${oneLine(line)}\n`).join("")}`;
}
