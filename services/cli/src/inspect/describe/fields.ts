import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { TableSpec } from "../print/output.ts";
import { formatTable } from "../print/table.ts";
import { oneLine } from "../print/terminal-text.ts";

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
