import { type DescMessage, type JsonObject, type MessageShape, toJson } from "@bufbuild/protobuf";
import type { OptionSpec } from "@kpng/process/options.ts";
import { InvalidArgumentError } from "commander";
import { Document } from "yaml";
import { type Column, formatTable } from "./table.ts";

const formats = ["table", "wide", "json", "jsonl", "yaml"] as const;
export type OutputFormat = (typeof formats)[number];

export const outputOptions: readonly OptionSpec[] = [
  {
    flags: "-o, --output <format>",
    description: "table, wide, json (one array), jsonl (an object a line) or yaml (a document each)",
    default: "table",
    // KPNG_OUTPUT is the file of to-file.
    env: "KPNG_OUTPUT_FORMAT",
    parse: (text) => {
      if (!(formats as readonly string[]).includes(text)) {
        throw new InvalidArgumentError(`the format is one of ${formats.join(", ")}`);
      }
      return text;
    },
  },
  { flags: "--no-headers", description: "leave out the titles of a table", env: "KPNG_NO_HEADERS" },
];

/** What a row's message is, and how it looks in a table. */
export interface RowKind<D extends DescMessage> {
  readonly schema: D;
  readonly columns: readonly Column<MessageShape<D>>[];
}

/** What became of a row in a watch. */
export type RowEvent = "put" | "delete";

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
    write: (text) => process.stdout.write(text),
  };
}

/** Prints all rows of a list. */
export function printRows<D extends DescMessage>(
  { schema, columns }: RowKind<D>,
  rows: readonly MessageShape<D>[],
  { format, hasHeaders, write }: OutputOptions,
): void {
  switch (format) {
    case "json":
      write(
        `${JSON.stringify(
          rows.map((row) => toPlain(schema, row)),
          undefined,
          2,
        )}\n`,
      );
      break;
    case "jsonl":
      for (const row of rows) write(`${JSON.stringify(toPlain(schema, row))}\n`);
      break;
    case "yaml":
      for (const row of rows) write(`---\n${toYaml(toPlain(schema, row))}`);
      break;
    default:
      if (rows.length > 0) write(formatTable(shown(columns, format), rows, hasHeaders));
  }
}

/**
 * Prints the rows of a watch as they come. In a table the first column says what became of each; otherwise each is an
 * object `{"event": "put", "row": {…}}` or `{"event": "delete", "key": "…"}`.
 */
export class WatchPrinter<D extends DescMessage> {
  readonly #kind: RowKind<D>;
  readonly #options: OutputOptions;
  readonly #widths: number[] = [];
  #hasTitles: boolean;

  constructor(kind: RowKind<D>, options: OutputOptions) {
    this.#kind = kind;
    this.#options = options;
    this.#hasTitles = options.hasHeaders;
  }

  print(rows: readonly MessageShape<D>[], deleted: readonly string[]): void {
    const { schema, columns } = this.#kind;
    const { format, write } = this.#options;
    const plain = [
      ...rows.map((row) => ({ event: "put" satisfies RowEvent, row: toPlain(schema, row) })),
      ...deleted.map((key) => ({ event: "delete" satisfies RowEvent, key })),
    ];
    switch (format) {
      case "json":
        for (const one of plain) write(`${JSON.stringify(one, undefined, 2)}\n`);
        return;
      case "jsonl":
        for (const one of plain) write(`${JSON.stringify(one)}\n`);
        return;
      case "yaml":
        for (const one of plain) write(`---\n${toYaml(one)}`);
        return;
      default: {
        const event: Column<MessageShape<D>> = { title: "EVENT", cell: () => "put" };
        if (rows.length > 0) {
          write(formatTable([event, ...shown(columns, format)], rows, this.#hasTitles, this.#widths));
          this.#hasTitles = false;
        }
        for (const key of deleted) write(`delete   ${key}\n`);
      }
    }
  }
}

function shown<T>(columns: readonly Column<T>[], format: OutputFormat): readonly Column<T>[] {
  return columns.filter(({ isWide }) => isWide !== true || format === "wide");
}

/** As protobuf's JSON, with every field: who asks with jq should not have to know which are left out. */
function toPlain<D extends DescMessage>(schema: D, row: MessageShape<D>): JsonObject {
  return toJson(schema, row, { alwaysEmitImplicit: true }) as JsonObject;
}

function toYaml(value: unknown): string {
  return new Document(value, { aliasDuplicateObjects: false }).toString({ lineWidth: 0 });
}
