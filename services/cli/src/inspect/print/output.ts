import {
  type DescField,
  type DescMessage,
  type JsonObject,
  type JsonValue,
  type MessageShape,
  ScalarType,
  toJson,
} from "@bufbuild/protobuf";
import type { OptionSpec } from "@kpng/process/options.ts";
import { InvalidArgumentError } from "commander";
import { type Column, enumWord, formatTable, narrow, oneLine, type TableSpec, terminalText } from "./text.ts";

/** Values of `--output`: tables for people, JSON for programs. */
const formats = ["table", "wide", "json"] as const;
type OutputFormat = (typeof formats)[number];

/** Parses a value of `--output`. Errors: InvalidArgumentError. */
export function parseOutputFormat(text: string): OutputFormat {
  const format = formats.find((one) => one === text);
  if (format !== undefined) return format;
  throw new InvalidArgumentError("expected table, wide or json; jq formats the output of -o json");
}

/** Option of all commands that print what a watcher or a backend answers. */
export const outputOptions: readonly OptionSpec[] = [
  {
    flags: "-o, --output <format>",
    description: "table, wide, or json (a List with items; with --watch, one object per line)",
    default: "table",
    // KPNG_OUTPUT is the file of to-file.
    env: "KPNG_OUTPUT_FORMAT",
    parse: parseOutputFormat,
  },
];

/** How a command prints its rows. */
export interface OutputOptions {
  readonly format: OutputFormat;
  readonly write: (text: string) => unknown;
}

/** The values of {@link outputOptions}. */
export function readOutputOptions(options: Readonly<Record<string, unknown>>): OutputOptions {
  return {
    format: parseOutputFormat(String(options.output)),
    write: (text) => process.stdout.write(terminalText(text)),
  };
}

/** True for the formats that are text for people, and not for programs. */
export function isTable({ format }: OutputOptions): boolean {
  return format === "table" || format === "wide";
}

/** Prints the rows of a list. Prints no table for an empty list. */
export function printRows<D extends DescMessage>(
  { schema, columns }: TableSpec<D>,
  rows: readonly MessageShape<D>[],
  output: OutputOptions,
): void {
  if (!isTable(output)) printMessages(schema, rows, output);
  else if (rows.length > 0) output.write(formatTable(shownColumns(columns, output), rows));
}

/** Prints messages as JSON, in a List as kubectl does. */
export function printMessages<D extends DescMessage>(
  schema: D,
  messages: readonly MessageShape<D>[],
  { write }: OutputOptions,
): void {
  write(formatJsonList(messages.map((message) => plainMessage(schema, message))));
}

/** Returns a JSON list of values, as kubectl prints several objects. */
export function formatJsonList(items: readonly JsonValue[]): string {
  return `${JSON.stringify({ kind: "List", items }, undefined, 2)}\n`;
}

/** Prints one message that is not a row of a list: JSON is an object. */
export function printMessage<D extends DescMessage>(
  schema: D,
  message: MessageShape<D>,
  { write }: OutputOptions,
): void {
  write(`${JSON.stringify(plainMessage(schema, message), undefined, 2)}\n`);
}

/**
 * Prints the rows of a watch as they arrive.
 *
 * The first column of a table is the event, "put" or "delete". JSON has an object per event:
 * `{"event": "put", "row": {…}}` or `{"event": "delete", "key": "…"}`.
 */
export class WatchPrinter<D extends DescMessage> {
  readonly #table: TableSpec<D>;
  readonly #output: OutputOptions;
  /** Column widths, kept so that later rows align with earlier ones. */
  readonly #widths: number[] = [];
  #needsHeaders = true;

  constructor(table: TableSpec<D>, output: OutputOptions) {
    this.#table = table;
    this.#output = output;
  }

  print(rows: readonly MessageShape<D>[], deletedKeys: readonly string[]): void {
    const { schema, columns } = this.#table;
    const { write } = this.#output;
    if (!isTable(this.#output)) {
      for (const row of rows) write(formatLine({ event: "put", row: plainMessage(schema, row) }));
      for (const key of deletedKeys) write(formatLine({ event: "delete", key }));
      return;
    }
    const event: Column<MessageShape<D>> = { title: "EVENT", cell: () => "put" };
    if (rows.length > 0) {
      write(formatTable([event, ...shownColumns(columns, this.#output)], rows, this.#needsHeaders, this.#widths));
      this.#needsHeaders = false;
    }
    for (const key of deletedKeys) write(`delete   ${oneLine(key)}\n`);
  }
}

function shownColumns<T>(columns: readonly Column<T>[], { format }: OutputOptions): readonly Column<T>[] {
  return format === "wide" ? columns : narrow(columns);
}

function formatLine(value: JsonObject): string {
  return `${JSON.stringify(value)}\n`;
}

/**
 * Converts a message of the inspection API to the JSON that `-o json` prints. Every field is there, so that a jq filter does not depend on which fields are set. Counts and revisions are numbers, and enum values
 * are words: "current", "TCP". Protobuf's own JSON has texts for 64-bit numbers and names such as APPLY_STATE_CURRENT.
 */
export function plainMessage<D extends DescMessage>(schema: D, message: MessageShape<D>): JsonObject {
  return convertMessage(schema, toJson(schema, message, { alwaysEmitImplicit: true }) as JsonObject);
}

function convertMessage({ fields }: DescMessage, json: JsonObject): JsonObject {
  const names = new Map(fields.map((field) => [field.jsonName, field]));
  return Object.fromEntries(
    Object.entries(json).map(([name, value]) => {
      const field = names.get(name);
      return [name, field === undefined ? value : convertField(field, value)];
    }),
  );
}

function convertField(field: DescField, value: JsonValue): JsonValue {
  if (field.fieldKind === "list" && Array.isArray(value)) return value.map((one) => convertValue(field, one));
  return field.fieldKind === "map" ? value : convertValue(field, value);
}

function convertValue({ scalar, enum: values, message }: DescField, value: JsonValue): JsonValue {
  if (values !== undefined) {
    const enumValue = values.values.find(({ name }) => name === value);
    return enumValue === undefined ? value : enumWord(values, enumValue.number);
  }
  // Revisions count from 1, and no number here comes near 2^53.
  if (scalar === ScalarType.UINT64 || scalar === ScalarType.INT64) return Number(value);
  const isOurs = message !== undefined && !message.typeName.startsWith("google.protobuf.");
  return isOurs ? convertMessage(message, value as JsonObject) : value;
}
