import { fromJson, type JsonObject, type JsonValue, toJson } from "@bufbuild/protobuf";
import { type OpItem, OpItemSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { WatcherError } from "../../watcher-error.ts";

/** Version of the format below; a reader refuses any other. */
const formatVersion = 1;

/**
 * One line of a recording.
 *
 * *Shape:* JSON Lines: a head, then the operations of a global stream as they came, and between them and at the end what
 * the watcher said of its streams, its changes and a node; rows are messages of kpng.inspect.v1 in protobuf's JSON.
 */
export type RecordingLine =
  | { readonly kind: "head"; readonly recordedBy: string; readonly beganAt: string; readonly status: JsonValue }
  /** `atMs`: since the recording began. */
  | { readonly kind: "op"; readonly atMs: number; readonly op: OpItem }
  | { readonly kind: "rows"; readonly of: RecordedRows; readonly atMs: number; readonly rows: readonly JsonValue[] };

export type RecordedRows = "subscribers" | "changes" | "node-endpoints";

/** Without a line end. */
export function formatRecordingLine(line: RecordingLine): string {
  if (line.kind === "head") return JSON.stringify({ kpngRecording: formatVersion, ...line });
  return JSON.stringify(line.kind === "op" ? { ...line, op: toJson(OpItemSchema, line.op) } : line);
}

/** Errors: BAD_INPUT, with the number of the line. A last line that was cut short is left out. */
export function parseRecording(text: string, name: string): readonly RecordingLine[] {
  const texts = text.split("\n");
  const rest = texts.pop() ?? "";
  const lines = texts.map((each, index) => parseLine(each, index, name));
  // Who was killed while it recorded leaves half a line: what is before it is worth as much.
  if (rest !== "" && isJson(rest)) lines.push(parseLine(rest, lines.length, name));
  if (lines[0]?.kind !== "head") throw new WatcherError("BAD_INPUT", `${name} is no recording of kpng`);
  return lines;
}

function parseLine(text: string, index: number, name: string): RecordingLine {
  const where = `${name}, line ${index + 1}`;
  let line: JsonObject;
  try {
    line = JSON.parse(text) as JsonObject;
  } catch (cause) {
    throw new WatcherError("BAD_INPUT", `${where} is no JSON: ${reasonOf(cause)}`);
  }
  if (index === 0 && line?.kpngRecording !== formatVersion) {
    throw new WatcherError("BAD_INPUT", `${where} is no head of a recording in format ${formatVersion}`);
  }
  const { kind, atMs = 0 } = line;
  if (typeof atMs !== "number" || !Number.isFinite(atMs))
    throw new WatcherError("BAD_INPUT", `${where}: atMs is no time`);
  switch (kind) {
    case "head":
      return { kind, recordedBy: String(line.recordedBy), beganAt: String(line.beganAt), status: line.status ?? null };
    case "op":
      return { kind, atMs, op: parseOp(line.op, where) };
    case "rows":
      if (!Array.isArray(line.rows)) throw new WatcherError("BAD_INPUT", `${where}: rows is no list`);
      return { kind, atMs, of: line.of as RecordedRows, rows: line.rows };
    default:
      throw new WatcherError("BAD_INPUT", `${where}: "${String(kind)}" is no kind of line`);
  }
}

function parseOp(json: JsonValue | undefined, where: string): OpItem {
  try {
    return fromJson(OpItemSchema, json ?? null);
  } catch (cause) {
    throw new WatcherError("BAD_INPUT", `${where} is no operation: ${reasonOf(cause)}`);
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
