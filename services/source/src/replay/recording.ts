import { constants } from "node:buffer";
import { readFileSync, statSync } from "node:fs";
import { gunzipSync, constants as zlib } from "node:zlib";
import { fromJson, type JsonObject, type JsonValue, toJson } from "@bufbuild/protobuf";
import { type OpItem, OpItemSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { isRecord } from "@kpng/model/narrowing.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { WatcherError } from "../watcher-error.ts";

/**
 * One line of a recording. *Shape:* JSON Lines: a head, the operations of a global stream and, in a bug report,
 * versions, findings and rows of the inspection API (messages of kpng.inspect.v1 as protobuf JSON).
 */
export type RecordingLine =
  | { readonly kind: "head"; readonly recordedBy: string; readonly beganAt: string; readonly status: JsonValue }
  /** `atMs` is the time since the recording began, in milliseconds. */
  | { readonly kind: "op"; readonly atMs: number; readonly op: OpItem }
  | { readonly kind: "rows"; readonly of: RecordedRows; readonly atMs: number; readonly rows: readonly JsonValue[] };

const formatVersion = 1;

type RecordedRows = "versions" | "nodes" | "subscribers" | "changes" | "findings";

export function formatRecordingLine(line: RecordingLine): string {
  if (line.kind === "head") return JSON.stringify({ kpngRecording: formatVersion, ...line });
  return JSON.stringify(line.kind === "op" ? { ...line, op: toJson(OpItemSchema, line.op) } : line);
}

/**
 * Parses a recording. A truncated last line, which a killed recorder leaves behind, is ignored. Errors: BAD_INPUT, with
 * the line number.
 */
export function parseRecording(text: string, name: string): readonly RecordingLine[] {
  const texts = text.split("\n");
  const lastText = texts.pop() ?? "";
  const lines = texts.map((each, index) => parseLine(each, index, name));
  if (lastText !== "" && isJson(lastText)) lines.push(parseLine(lastText, lines.length, name));
  if (lines[0]?.kind !== "head") throw new WatcherError("BAD_INPUT", `${name} is not a recording of kpng`);
  return lines;
}

function parseLine(text: string, index: number, name: string): RecordingLine {
  const where = `${name}, line ${index + 1}`;
  let line: JsonObject;
  try {
    line = JSON.parse(text) as JsonObject;
  } catch (cause) {
    throw bad(where, `not JSON: ${reasonOf(cause)}`);
  }
  if (!isRecord(line)) throw bad(where, "not a JSON object");
  if (index === 0 && line.kpngRecording !== formatVersion) {
    throw bad(where, `not the head of a recording in format ${formatVersion}`);
  }
  const { kind, atMs = 0 } = line;
  if (typeof atMs !== "number" || !Number.isFinite(atMs)) throw bad(where, "atMs is not a number");
  switch (kind) {
    case "head":
      return { kind, recordedBy: String(line.recordedBy), beganAt: String(line.beganAt), status: line.status ?? null };
    case "op":
      return { kind, atMs, op: parseOp(line.op, where) };
    case "rows":
      if (!Array.isArray(line.rows)) throw bad(where, "rows is not a list");
      return { kind, atMs, of: line.of as RecordedRows, rows: line.rows };
    default:
      throw bad(where, `unknown kind "${String(kind)}"`);
  }
}

function parseOp(json: JsonValue | undefined, where: string): OpItem {
  try {
    return fromJson(OpItemSchema, json ?? null);
  } catch (cause) {
    throw bad(where, `invalid operation: ${reasonOf(cause)}`);
  }
}

function bad(where: string, problem: string): WatcherError {
  return new WatcherError("BAD_INPUT", `${where}: ${problem}`);
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * Reads a recording, either plain or compressed with gzip. Of a truncated one, `lines` holds what is there, and
 * `isTruncated` is true if it ends within a line. Errors: BAD_INPUT if the recording is unreadable, too large or invalid.
 */
export function readRecording(path: string): {
  readonly lines: readonly RecordingLine[];
  readonly isTruncated: boolean;
} {
  let bytes: Buffer;
  try {
    if (statSync(path).size > maxRecordingBytes) throw new Error(`larger than ${maxRecordingBytes} bytes`);
    bytes = readFileSync(path);
    // With this flush mode, a truncated file gives its beginning instead of an error.
    const limits = { maxOutputLength: maxRecordingBytes, finishFlush: zlib.Z_SYNC_FLUSH };
    if (bytes[0] === 0x1f && bytes[1] === 0x8b) bytes = gunzipSync(bytes, limits);
  } catch (cause) {
    throw new WatcherError("BAD_INPUT", `cannot read the recording ${path}`, { cause });
  }
  return { lines: parseRecording(bytes.toString("utf8"), path), isTruncated: bytes.at(-1) !== 0x0a };
}

/** Maximum size of a recording, in bytes after decompression: about 512 MiB, the maximum string length of Node.js. */
export const maxRecordingBytes = constants.MAX_STRING_LENGTH;
