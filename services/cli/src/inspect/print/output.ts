import {
  type DescField,
  type DescMessage,
  type JsonObject,
  type JsonValue,
  type MessageShape,
  ScalarType,
  toJson,
} from "@bufbuild/protobuf";
import { compareText } from "@kpng/model/collections.ts";
import { type OptionSpec, oneOf } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { type Column, enumWord, formatTable, narrow, oneLine, type TableSpec, terminalText } from "./text.ts";

export const parseOutputFormat = oneOf(["table", "wide", "json", "yaml", "name"], "; jq formats the output of -o json");

type OutputFormat = ReturnType<typeof parseOutputFormat>;

/** Returns the option for the format of a command that prints no rows. `env` is its environment variable. */
export function textOrJsonOption(env: string): OptionSpec {
  const parse = oneOf(["text", "json"]);
  return { flags: "-o, --output <format>", description: "text or json", default: "text", env, parse };
}

/** Options of all commands that print answers from a watcher or a backend: format and order. */
export const outputOptions: readonly OptionSpec[] = [
  {
    flags: "-o, --output <format>",
    description:
      "table, wide, json (a List with items; with --watch, one object per line), yaml (one document per object) or name",
    default: "table",
    // KPNG_OUTPUT is already the output file of to-file.
    env: "KPNG_OUTPUT_FORMAT",
    parse: parseOutputFormat,
  },
  { flags: "--sort-by <path>", description: "field of the rows in JSON, for example .name or .endpoints.ready" },
];

/** How a command prints its rows. */
export interface OutputOptions {
  readonly format: OutputFormat;
  /** Path of the field by which rows are sorted; undefined to keep the watcher's order. */
  readonly sortBy?: string | undefined;
  readonly write: (text: string) => unknown;
  /** Formats a document; only for `-o yaml`. */
  readonly formatYaml?: ((value: JsonObject) => string) | undefined;
}

/** Reads the values of {@link outputOptions}. */
export async function readOutputOptions(options: Readonly<Record<string, unknown>>): Promise<OutputOptions> {
  const format = parseOutputFormat(String(options.output));
  return {
    format,
    formatYaml: format === "yaml" ? await loadYaml() : undefined,
    sortBy: options.sortBy as string | undefined,
    write: (text) => process.stdout.write(terminalText(text)),
  };
}

/** Loads the YAML library on demand, because it has 70 modules. Returns a function that formats a document. */
export async function loadYaml(): Promise<(value: JsonObject) => string> {
  const { stringify } = await import("yaml");
  return (value) => `---\n${stringify(value, { lineWidth: 0, aliasDuplicateObjects: false })}`;
}

/** True for the formats that are meant for people, not for programs. */
export function isTable({ format }: OutputOptions): boolean {
  return format === "table" || format === "wide";
}

/** Prints the rows of a list; no table for an empty one. Errors: BAD_OPTION for `-o name` if rows have no names. */
export function printRows<D extends DescMessage>(
  { schema, columns, nameOf }: TableSpec<D>,
  rows: readonly MessageShape<D>[],
  output: OutputOptions,
): void {
  const sorted = sortRows(schema, rows, output.sortBy);
  if (isTable(output)) {
    if (rows.length > 0) output.write(formatTable(shownColumns(columns, output), sorted));
  } else if (output.format === "name" && nameOf !== undefined) {
    output.write(sorted.map((row) => `${oneLine(nameOf(row))}\n`).join(""));
  } else printMessages(schema, sorted, output);
}

/** Prints messages as YAML, or as JSON in a List as kubectl does. Errors: BAD_OPTION for `-o name`. */
export function printMessages<D extends DescMessage>(
  schema: D,
  messages: readonly MessageShape<D>[],
  output: OutputOptions,
): void {
  if (output.format === "name") throw new ProcessError("BAD_OPTION", "-o name: the rows of this command have no names");
  const items = messages.map((message) => plainMessage(schema, message));
  if (output.format === "json") output.write(`${JSON.stringify({ kind: "List", items }, undefined, 2)}\n`);
  else for (const item of items) output.write(formatValue(item, output));
}

/** Prints one message that is not a row of a list; as JSON, it is an object. */
export function printMessage<D extends DescMessage>(schema: D, message: MessageShape<D>, output: OutputOptions): void {
  const { format, write } = output;
  if (format === "json") write(`${JSON.stringify(plainMessage(schema, message), undefined, 2)}\n`);
  else printMessages(schema, [message], output);
}

/** Sorts rows by a field: numbers and durations by value, everything else as text. */
function sortRows<D extends DescMessage>(
  schema: D,
  rows: readonly MessageShape<D>[],
  path: string | undefined,
): readonly MessageShape<D>[] {
  if (path === undefined) return rows;
  const keys = new Map(rows.map((row) => [row, valueAt(path, plainMessage(schema, row))]));
  if (rows.length > 0 && [...keys.values()].every((key) => key === undefined)) {
    throw new ProcessError("BAD_OPTION", `--sort-by "${path}": no row has this field; see -o json`);
  }
  return rows.toSorted((one, other) => compareKeys(keys.get(one), keys.get(other)));
}

/** Returns the value at a path of field names and indexes: `.ports[0].port`, optionally in braces as in kubectl. */
function valueAt(path: string, row: JsonValue): JsonValue | undefined {
  const words = path.match(/[^.[\]{}]+/g) ?? [];
  return words.reduce<JsonValue | undefined>((value, word) => (value as JsonObject | undefined)?.[word], row);
}

function compareKeys(...keys: readonly (JsonValue | undefined)[]): number {
  const [one = "", other = ""] = keys.map((key) => {
    const isDuration = /^-?\d+(\.\d+)?s$/.test(String(key));
    return isDuration ? Number.parseFloat(String(key)) : (key ?? "");
  });
  return typeof one === "number" && typeof other === "number" ? one - other : compareText(String(one), String(other));
}

/** What a message of a watch has: rows that are new or have changed, and the keys of deleted ones. */
export interface RowChanges<T> {
  readonly rows: readonly T[];
  readonly deleted: readonly string[];
}

/**
 * Returns a function that prints the rows of a watch as they arrive.
 *
 * The first column of a table is the event, "put" or "delete". JSON and YAML output has one object per event:
 * `{"event": "put", "row": {…}}` or `{"event": "delete", "key": "…"}`. With `-o name`, only the names of put rows are
 * printed.
 */
export function watchPrinter<D extends DescMessage>(table: TableSpec<D>, output: OutputOptions) {
  const { schema, columns } = table;
  const { format, write } = output;
  const event: Column<MessageShape<D>> = { title: "EVENT", cell: () => "put" };
  /** Column widths, which are kept so that later rows align with earlier ones; empty before the headers. */
  const widths: number[] = [];
  return ({ rows, deleted }: RowChanges<MessageShape<D>>): void => {
    if (format === "name") printRows(table, rows, output);
    else if (!isTable(output)) {
      for (const row of rows) write(formatValue({ event: "put", row: plainMessage(schema, row) }, output));
      for (const key of deleted) write(formatValue({ event: "delete", key }, output));
    } else {
      if (rows.length > 0)
        write(formatTable([event, ...shownColumns(columns, output)], rows, widths.length === 0, widths));
      for (const key of deleted) write(`delete   ${oneLine(key)}\n`);
    }
  };
}

function shownColumns<T>(columns: readonly Column<T>[], { format }: OutputOptions): readonly Column<T>[] {
  return format === "wide" ? columns : narrow(columns);
}

function formatValue(value: JsonObject, { formatYaml }: OutputOptions): string {
  return formatYaml === undefined ? `${JSON.stringify(value)}\n` : formatYaml(value);
}

/**
 * Converts a message of the inspection API to the JSON that `-o json` and `-o yaml` print. Every field is present, so
 * that a jq filter does not depend on which fields are set. Counts and revisions are numbers, and enum values are
 * words: "current", "TCP". Protobuf's own JSON format would have strings for 64-bit numbers and names such as
 * APPLY_STATE_CURRENT.
 */
function plainMessage<D extends DescMessage>(schema: D, message: MessageShape<D>): JsonObject {
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
  const { fieldKind, scalar, enum: values, message } = field;
  if (fieldKind === "map") return value;
  if (Array.isArray(value)) return value.map((one) => convertField(field, one));
  if (values !== undefined) {
    const enumValue = values.values.find(({ name }) => name === value);
    return enumValue === undefined ? value : enumWord(values, enumValue.number);
  }
  // Number is precise enough: revisions count from 1, and no number here comes near 2^53.
  if (scalar === ScalarType.UINT64 || scalar === ScalarType.INT64) return Number(value);
  const isOurs = message !== undefined && !message.typeName.startsWith("google.protobuf.");
  return isOurs ? convertMessage(message, value as JsonObject) : value;
}
