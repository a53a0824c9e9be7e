import { type DescMessage, type JsonObject, type MessageShape, toJson } from "@bufbuild/protobuf";
import type { OptionSpec } from "@kpng/process/options.ts";
import { InvalidArgumentError } from "commander";
import { Document } from "yaml";
import { type Column, formatTable } from "./table.ts";
import { hasUnsafe, oneLine, terminalJson, terminalText } from "./terminal-text.ts";

const formats = ["table", "wide", "json", "jsonl", "yaml"] as const;
/** Values of `--output`: tables for people, JSON and YAML for programs. */
export type OutputFormat = (typeof formats)[number];

/** Options of all commands that print what a watcher or a backend answers: format and headers. */
export const outputOptions: readonly OptionSpec[] = [
  {
    flags: "-o, --output <format>",
    description: "table, wide, json (one array), jsonl (one object per line) or yaml (one document per object)",
    default: "table",
    // KPNG_OUTPUT is the file of to-file.
    env: "KPNG_OUTPUT_FORMAT",
    parse: (text) => {
      if ((formats as readonly string[]).includes(text)) return text;
      throw new InvalidArgumentError("expected table, wide, json, jsonl or yaml");
    },
  },
  { flags: "--no-headers", description: "print tables without headers", env: "KPNG_NO_HEADERS" },
];

/**
 * Columns that show messages of one type as the rows of a table. Commands such as `kpng get services` pass them to
 * {@link printRows}.
 */
export interface TableSpec<D extends DescMessage> {
  readonly schema: D;
  readonly columns: readonly Column<MessageShape<D>>[];
}

/** How a command prints its rows. `readOutputOptions` makes it, and the functions of this file take it. */
export interface OutputOptions {
  readonly format: OutputFormat;
  readonly hasHeaders: boolean;
  readonly write: (text: string) => unknown;
}

/** The values of {@link outputOptions}. */
export function readOutputOptions(options: Readonly<Record<string, unknown>>): OutputOptions {
  return {
    format: options.output as OutputFormat,
    hasHeaders: options.headers !== false,
    write: (text) => process.stdout.write(terminalText(text)),
  };
}

/** True for the formats that are text for people, and not for programs. */
export function isTable({ format }: OutputOptions): boolean {
  return format === "table" || format === "wide";
}

/**
 * Prints the rows of a list. Prints no table for an empty list. Tables are laid out by `formatTable`; this file chooses
 * the format and converts messages.
 */
export function printRows<D extends DescMessage>(
  { schema, columns }: TableSpec<D>,
  rows: readonly MessageShape<D>[],
  output: OutputOptions,
): void {
  if (isTable(output)) {
    if (rows.length > 0) output.write(formatTable(shownColumns(columns, output), rows, output.hasHeaders));
  } else printMessages(schema, rows, output);
}

/** Prints messages as JSON or YAML. */
export function printMessages<D extends DescMessage>(
  schema: D,
  messages: readonly MessageShape<D>[],
  { format, write }: OutputOptions,
): void {
  const plain = messages.map((message) => toPlain(schema, message));
  if (format === "json") write(`${terminalJson(JSON.stringify(plain, undefined, 2))}\n`);
  else for (const value of plain) write(formatValue(value, format));
}

/**
 * Prints the rows of a watch as they arrive.
 *
 * The first column of a table is the event, "put" or "delete". The other formats print an object per event:
 * `{"event": "put", "row": {…}}` or `{"event": "delete", "key": "…"}`.
 */
export class WatchPrinter<D extends DescMessage> {
  readonly #table: TableSpec<D>;
  readonly #output: OutputOptions;
  /** Column widths, kept so that later rows align with earlier ones. */
  readonly #widths: number[] = [];
  #needsHeaders: boolean;

  constructor(table: TableSpec<D>, output: OutputOptions) {
    this.#table = table;
    this.#output = output;
    this.#needsHeaders = output.hasHeaders;
  }

  print(rows: readonly MessageShape<D>[], deletedKeys: readonly string[]): void {
    const { schema, columns } = this.#table;
    const { format, write } = this.#output;
    if (!isTable(this.#output)) {
      for (const row of rows) write(formatValue({ event: "put", row: toPlain(schema, row) }, format));
      for (const key of deletedKeys) write(formatValue({ event: "delete", key }, format));
      return;
    }
    const event: Column<MessageShape<D>> = { title: "EVENT", cell: () => "put" };
    if (rows.length > 0) {
      const shown = [event, ...shownColumns(columns, this.#output)];
      write(formatTable(shown, rows, this.#needsHeaders, this.#widths));
      this.#needsHeaders = false;
    }
    for (const key of deletedKeys) write(`delete   ${oneLine(key)}\n`);
  }
}

function shownColumns<T>(columns: readonly Column<T>[], { format }: OutputOptions): readonly Column<T>[] {
  return columns.filter(({ isWide }) => isWide !== true || format === "wide");
}

/** Converts to protobuf's JSON with every field, so that a jq filter does not depend on which fields are set. */
function toPlain<D extends DescMessage>(schema: D, message: MessageShape<D>): JsonObject {
  return toJson(schema, message, { alwaysEmitImplicit: true }) as JsonObject;
}

function formatValue(value: JsonObject, format: OutputFormat): string {
  const json = JSON.stringify(value, undefined, format === "json" ? 2 : 0);
  if (format !== "yaml") return `${terminalJson(json)}\n`;
  const style = { lineWidth: 0, ...(hasUnsafe(json) ? { defaultStringType: "QUOTE_DOUBLE" as const } : {}) };
  const text = new Document(value, { aliasDuplicateObjects: false }).toString(style);
  return `---\n${hasUnsafe(json) ? terminalJson(text) : text}`;
}
