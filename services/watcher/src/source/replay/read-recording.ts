import { readFileSync, statSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { WatcherError } from "../watcher-error.ts";
import { parseRecording, type RecordingLine } from "./recording.ts";

/** Reads a recording from a file, plain or compressed by gzip. Errors: BAD_INPUT. */
export function readRecording(path: string): readonly RecordingLine[] {
  let bytes: Buffer;
  try {
    if (statSync(path).size > maxBytes) throw new Error(`larger than ${maxBytes} bytes`);
    bytes = readFileSync(path);
    if (bytes[0] === 0x1f && bytes[1] === 0x8b) bytes = gunzipSync(bytes, { maxOutputLength: maxBytes });
  } catch (cause) {
    throw new WatcherError("BAD_INPUT", `cannot read the recording ${path}`, { cause });
  }
  return parseRecording(bytes.toString("utf8"), path);
}

/** Largest recording, in bytes after decompression. It is read into memory. */
const maxBytes = 1024 * 1024 * 1024;
