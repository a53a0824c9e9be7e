import type { DescEnum, DescMessage, EnumShape, MessageShape } from "@bufbuild/protobuf";
import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";

/** Returns a duration, or a time since 1970, in milliseconds with fractions, which the functions of protobuf lack. */
export function toMs({ seconds, nanos }: Timestamp | Duration): number {
  return Number(seconds) * 1_000 + nanos / 1_000_000;
}

/** Formats a duration with three significant digits: `350µs`, `1.2ms`, `45ms`, `1.25s`, `3m20s`, `2h5m`, `4d`. */
export function formatMs(ms: number): string {
  // A limit is where rounding would give 1000 of the smaller unit, or 60 s.
  if (ms < 0.9995) return `${Math.round(ms * 1_000)}µs`;
  if (ms < 999.5) return `${Number(ms.toPrecision(3))}ms`;
  if (ms < 59_950) return `${Number((ms / 1_000).toPrecision(3))}s`;
  const seconds = Math.round(ms / 1_000);
  if (seconds < 3_600) return pair(seconds, 60, "m", "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 24 * 60) return pair(minutes, 60, "h", "m");
  return pair(Math.round(minutes / 60), 24, "d", "h");
}

/** Formats a duration; "" if it is absent. */
export function formatDuration(duration: Duration | undefined): string {
  return duration === undefined ? "" : formatMs(toMs(duration));
}

/** Formats the time elapsed since `time`: "12s"; "" if `time` is absent, "0s" if it is in the future. */
export function formatAge(time: Timestamp | undefined, nowMs: number = Date.now()): string {
  if (time === undefined) return "";
  const ms = Math.max(0, nowMs - toMs(time));
  return ms < 60_000 ? `${Math.floor(ms / 1_000)}s` : formatMs(ms);
}

/** Formats a time as UTC clock time with milliseconds: "12:03:44.120". */
export function formatClock(time: Timestamp | undefined): string {
  return time === undefined ? "" : new Date(toMs(time)).toISOString().slice(11, 23);
}

/** Formats a number with its noun: "1 slice", "2 slices", "0 slices". */
export function formatCount(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Enums whose values are spelled as in Kubernetes: "TCP", "Cluster". */
const kubernetesEnums: ReadonlyMap<string, (word: string) => string> = new Map([
  ["kpng.inspect.v1.Protocol", (word) => word],
  ["kpng.inspect.v1.TrafficPolicy", (word) => word.charAt(0) + word.slice(1).toLowerCase()],
]);

/** Returns the word for an enum value; "" for the unspecified value. docs/reference/output.md describes the words. */
export function enumWord({ values, typeName }: DescEnum, number: number): string {
  const word = number === 0 ? "" : (values.find((value) => value.number === number)?.localName ?? "");
  return kubernetesEnums.get(typeName)?.(word) ?? word.toLowerCase().replaceAll("_", "-");
}

/** Formats labels as kubectl does: `app=web,tier=front`. */
export function formatLabels(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(",");
}

/** Returns the values of an enum, except the unspecified one, by the words that {@link enumWord} returns for them. */
export function enumWords<D extends DescEnum>(schema: D): ReadonlyMap<string, EnumShape<D>> {
  const numbers = schema.values.map(({ number }) => number).filter((number) => number !== 0);
  return new Map(numbers.map((number) => [enumWord(schema, number), number as EnumShape<D>]));
}

function pair(value: number, base: number, high: string, low: string): string {
  const remainder = value % base;
  return `${Math.floor(value / base)}${high}${remainder === 0 ? "" : `${remainder}${low}`}`;
}

/**
 * Characters that change how a terminal shows the text around them: control characters (including the C1 set, in which
 * a single character begins an escape sequence), line and paragraph separators, and marks for bidirectional text.
 */
const unsafe = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]+/gv;
const unsafeExceptLayout = /[[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]--[\n\t]]+/gv;

/** Returns the text as one line: each run of unsafe characters becomes a space. */
export function oneLine(text: string): string {
  return text.replaceAll(unsafe, " ").trim();
}

/** Returns text without unsafe characters, except line breaks and tabs. */
export function terminalText(text: string): string {
  return text.replaceAll(unsafeExceptLayout, " ");
}

/** A column of a table. `T` is the type of a row. */
export interface Column<T> {
  /** In capitals, as in kubectl. */
  readonly title: string;
  /** Returns the text of the cell in a row; "" is shown as "-". */
  readonly cell: (row: T) => string;
  /** Shown only with `-o wide`, and by `kpng describe`. */
  readonly isWide?: boolean | undefined;
  /** Maximum length in a table, in characters; `kpng describe` and the other formats show the whole text. */
  readonly maxLength?: number | undefined;
}

/** Columns that show messages of one type as the rows of a table. */
export interface TableSpec<D extends DescMessage> {
  readonly schema: D;
  readonly columns: readonly Column<MessageShape<D>>[];
  /** Name of a row, for `-o name`: `service/default/web`. Absent if rows have no names. */
  readonly nameOf?: ((row: MessageShape<D>) => string) | undefined;
}

/**
 * Formats rows as kubectl does: left-aligned columns, as wide as their widest cell, with three spaces between them. The
 * result contains no control characters except line breaks.
 *
 * `widths` are minimum widths. The call updates them, so that later rows of a watch align with earlier ones.
 */
export function formatTable<T>(
  columns: readonly Column<T>[],
  rows: readonly T[],
  hasHeaders = true,
  widths: number[] = [],
): string {
  const shorten = (text: string, maxLength = Number.POSITIVE_INFINITY): string =>
    text.length <= maxLength ? text : `${text.slice(0, maxLength - 1)}…`;
  const lines = rows.map((row) => columns.map(({ cell, maxLength }) => shorten(oneLine(cell(row)), maxLength) || "-"));
  if (hasHeaders) lines.unshift(columns.map(({ title }) => oneLine(title)));
  for (const line of lines) {
    for (const [index, text] of line.entries()) widths[index] = Math.max(widths[index] ?? 0, text.length);
  }
  const padded = lines.map((line) => line.map((text, index) => text.padEnd(widths[index] ?? 0)));
  return padded.map((cells) => `${cells.join("   ").trimEnd()}\n`).join("");
}

/**
 * Formats all columns of one row as `kubectl describe` does: one line per column with its name and value, with the
 * values aligned; "<none>" for an empty value.
 */
export function formatRow<T>(columns: readonly Column<T>[], row: T): string {
  const width = Math.max(...columns.map(({ title }) => title.length)) + 1;
  return columns
    .map(({ title, cell }) => {
      const name = `${title.charAt(0)}${title.slice(1).toLowerCase().replaceAll("-", " ")}:`;
      return `${name.padEnd(width)}  ${oneLine(cell(row)) || "<none>"}\n`;
    })
    .join("");
}

/** Returns the columns that are shown without `-o wide`. */
export function narrow<T>(columns: readonly Column<T>[]): readonly Column<T>[] {
  return columns.filter(({ isWide }) => isWide !== true);
}

/** Formats an indented table below a title; "<none>" for an empty table. */
export function formatSection<T>(title: string, columns: readonly Column<T>[], rows: readonly T[]): string {
  if (rows.length === 0) return `${title}:  <none>\n`;
  return `${title}:\n${formatTable(narrow(columns), rows).replaceAll(/^/gm, "  ").trimEnd()}\n`;
}

/** Formats an indented list below a title; "" for an empty list. */
export function formatList(title: string, lines: readonly string[]): string {
  return lines.length === 0 ? "" : `${title}:\n${lines.map((line) => `  ${oneLine(line)}\n`).join("")}`;
}
