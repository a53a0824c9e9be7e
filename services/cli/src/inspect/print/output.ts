import type { DescMessage, JsonObject, JsonValue, MessageShape } from "@bufbuild/protobuf";
import { compareText } from "@kpng/model/text-order.ts";
import type { OptionSpec } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { InvalidArgumentError } from "commander";
import { colorOption, type Paint, paintOf } from "./color.ts";
import { parseColumns, parseTemplate, valuesAt } from "./json-path.ts";
import { plainMessage } from "./plain-message.ts";
import { type Column, formatTable } from "./table.ts";
import { oneLine, terminalJson, terminalText } from "./terminal-text.ts";

// Prints what a watcher or a backend answers, in the format that the user chose. The commands of `inspect/` that list
// messages call `readOutputOptions`, `printRows` and `printMessages`. Separate from them, because all have these
// formats.

/** Values of `--output`: tables and templates for people, JSON and YAML for programs. */
type OutputFormat =
  | { readonly kind: "table" | "wide" | "json" | "jsonl" | "yaml" | "name" }
  | { readonly kind: "jsonpath"; readonly fill: (root: JsonValue) => string }
  | { readonly kind: "custom-columns"; readonly columns: readonly Column<JsonValue>[] };

const plainFormats = ["table", "wide", "json", "jsonl", "yaml", "name"] as const;

/** Parses a value of `--output`. Errors: InvalidArgumentError. */
export function parseOutputFormat(text: string): OutputFormat {
  const [name = "", rest] = text.split(/=(.*)/s);
  const kind = plainFormats.find((format) => format === text);
  if (kind !== undefined) return { kind };
  if (name === "jsonpath" && rest) {
    const fill = parseTemplate(rest);
    return { kind: name, fill: (root) => terminalText(fill(root)) };
  }
  if (name === "custom-columns" && rest) return { kind: name, columns: parseColumns(rest) };
  throw new InvalidArgumentError(
    "expected table, wide, json, jsonl, yaml, name, jsonpath=TEMPLATE or custom-columns=TITLE:.field,…",
  );
}

/** Options of all commands that print what a watcher or a backend answers: format, headers and order. */
export const outputOptions: readonly OptionSpec[] = [
  {
    flags: "-o, --output <format>",
    description:
      "table, wide, json (one array), jsonl (one object per line), yaml (one document per object), name, " +
      "jsonpath=TEMPLATE or custom-columns=TITLE:.field,…",
    default: "table",
    // KPNG_OUTPUT is the file of to-file.
    env: "KPNG_OUTPUT_FORMAT",
    parse: (text) => {
      parseOutputFormat(text);
      return text;
    },
  },
  { flags: "--no-headers", description: "print tables without headers", env: "KPNG_NO_HEADERS" },
  { flags: "--sort-by <path>", description: "field of the rows in JSON, for example .name or .endpoints.ready" },
  colorOption,
];

/**
 * Columns that show messages of one type as the rows of a table. Commands such as `kpng get services` pass them to
 * {@link printRows}.
 */
export interface TableSpec<D extends DescMessage> {
  readonly schema: D;
  readonly columns: readonly Column<MessageShape<D>>[];
  /** Name of a row, for `-o name`: `service/default/web`. Absent if rows have no names. */
  readonly nameOf?: ((row: MessageShape<D>) => string) | undefined;
}

/** How a command prints its rows. `readOutputOptions` makes it, and the functions of this file take it. */
export interface OutputOptions {
  readonly format: OutputFormat;
  readonly hasHeaders: boolean;
  /** Path of the field that rows are sorted by; undefined for the order of the watcher. */
  readonly sortBy?: string | undefined;
  readonly write: (text: string) => unknown;
  /** Formats a document; only for `-o yaml`. */
  readonly formatYaml?: ((value: JsonObject) => string) | undefined;
  /** Colours cells of tables. Default: no colours. */
  readonly paint?: Paint | undefined;
}

/** The values of {@link outputOptions}. */
export async function readOutputOptions(options: Readonly<Record<string, unknown>>): Promise<OutputOptions> {
  const format = parseOutputFormat(String(options.output));
  return {
    format,
    formatYaml: format.kind === "yaml" ? (await import("./format-yaml.ts")).formatYaml : undefined,
    hasHeaders: options.headers !== false,
    sortBy: options.sortBy as string | undefined,
    write: (text) => process.stdout.write(terminalText(text)),
    paint: paintOf(options.color),
  };
}

/** True for the formats that are text for people, and not for programs. */
export function isTable({ format }: OutputOptions): boolean {
  return format.kind === "table" || format.kind === "wide";
}

/**
 * Prints the rows of a list. Prints no table for an empty list. Tables are laid out by `formatTable`; this file chooses
 * the format.
 *
 * Errors: BAD_OPTION for `-o name` if the rows have no names.
 */
export function printRows<D extends DescMessage>(
  { schema, columns, nameOf }: TableSpec<D>,
  rows: readonly MessageShape<D>[],
  output: OutputOptions,
): void {
  const sorted = sortRows(schema, rows, output.sortBy);
  if (isTable(output)) {
    if (rows.length > 0) printTable(shownColumns(columns, output), sorted, output);
  } else if (output.format.kind === "name" && nameOf !== undefined) {
    output.write(sorted.map((row) => `${oneLine(nameOf(row))}\n`).join(""));
  } else printMessages(schema, sorted, output);
}

/** Prints a table, coloured if the output has colours: `write` would remove the escape sequences. */
function printTable<T>(
  columns: readonly Column<T>[],
  rows: readonly T[],
  { hasHeaders, paint, write }: OutputOptions,
  widths: number[] = [],
): void {
  const text = formatTable(columns, rows, hasHeaders, widths, paint);
  if (paint === undefined) write(text);
  else process.stdout.write(text);
}

/** Prints messages as JSON, as YAML, or by a template, whose root is `{"items": […]}`. */
export function printMessages<D extends DescMessage>(
  schema: D,
  messages: readonly MessageShape<D>[],
  output: OutputOptions,
): void {
  const { format, hasHeaders, write } = output;
  if (format.kind === "name") throw new ProcessError("BAD_OPTION", "-o name: the rows of this command have no names");
  const items = messages.map((message) => plainMessage(schema, message));
  if (format.kind === "json") write(`${terminalJson(JSON.stringify(items, undefined, 2))}\n`);
  else if (format.kind === "jsonpath") {
    const text = format.fill({ items });
    write(text);
    if (text === "" && items.length > 0) process.stderr.write(emptyTemplateHint);
  } else if (format.kind === "custom-columns") write(formatTable(format.columns, items, hasHeaders));
  else for (const item of items) write(formatValue(item, output));
}

const emptyTemplateHint =
  'Hint: the template selects nothing; its root is {"items": [ROW, …]}, and -o json shows the rows\n';

/** Prints one message that is not a row of a list: JSON is an object, and the root of a template is the message. */
export function printMessage<D extends DescMessage>(schema: D, message: MessageShape<D>, output: OutputOptions): void {
  const { format, write } = output;
  if (format.kind === "json") write(`${terminalJson(JSON.stringify(plainMessage(schema, message), undefined, 2))}\n`);
  else if (format.kind === "jsonpath") write(format.fill(plainMessage(schema, message)));
  else printMessages(schema, [message], output);
}

/** Sorts by a field: numbers by value, everything else as text. Rows with equal fields keep their order. */
function sortRows<D extends DescMessage>(
  schema: D,
  rows: readonly MessageShape<D>[],
  path: string | undefined,
): readonly MessageShape<D>[] {
  if (path === undefined) return rows;
  const keys = new Map(rows.map((row) => [row, valuesAt(path, plainMessage(schema, row))[0]]));
  if (rows.length > 0 && [...keys.values()].every((key) => key === undefined)) {
    throw new ProcessError("BAD_OPTION", `--sort-by "${path}": no row has this field; see -o json`);
  }
  return rows.toSorted((one, other) => compareKeys(keys.get(one), keys.get(other)));
}

function compareKeys(one: JsonValue | undefined, other: JsonValue | undefined): number {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return compareText(String(one ?? ""), String(other ?? ""));
}

/**
 * Prints the rows of a watch as they arrive.
 *
 * The first column of a table is the event, "put" or "delete". The other formats print an object per event:
 * `{"event": "put", "row": {…}}` or `{"event": "delete", "key": "…"}`, which is also the root of a template. Names and
 * columns chosen by the user show only puts.
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
    if (format.kind === "name" || format.kind === "custom-columns") {
      printRows(this.#table, rows, { ...this.#output, hasHeaders: this.#needsHeaders });
      this.#needsHeaders = false;
      return;
    }
    if (format.kind !== "table" && format.kind !== "wide") {
      const events = [
        ...rows.map((row): JsonObject => ({ event: "put", row: plainMessage(schema, row) })),
        ...deletedKeys.map((key): JsonObject => ({ event: "delete", key })),
      ];
      for (const event of events) {
        write(format.kind === "jsonpath" ? format.fill(event) : formatValue(event, this.#output));
      }
      return;
    }
    const event: Column<MessageShape<D>> = { title: "EVENT", cell: () => "put" };
    if (rows.length > 0) {
      const shown = [event, ...shownColumns(columns, this.#output)];
      printTable(shown, rows, { ...this.#output, hasHeaders: this.#needsHeaders }, this.#widths);
      this.#needsHeaders = false;
    }
    for (const key of deletedKeys) write(`delete   ${oneLine(key)}\n`);
  }
}

function shownColumns<T>(columns: readonly Column<T>[], { format }: OutputOptions): readonly Column<T>[] {
  return columns.filter(({ isWide }) => isWide !== true || format.kind === "wide");
}

function formatValue(value: JsonObject, { format, formatYaml }: OutputOptions): string {
  if (formatYaml !== undefined) return formatYaml(value);
  return `${terminalJson(JSON.stringify(value, undefined, format.kind === "json" ? 2 : 0))}\n`;
}
