import { constants } from "node:buffer";
import { readFileSync, statSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { WatcherError } from "../watcher-error.ts";
import { parseRecording, type RecordingLine } from "./recording.ts";

/**
 * Reads a recording from a file, plain or compressed by gzip. A recording contains the state of a watcher and its
 * changes over some time: `kpng record` writes it, `kpng replay` and `kpng trace --recording` read it.
 *
 * Errors: BAD_INPUT if the file cannot be read, is larger than {@link maxRecordingBytes}, or is not a recording.
 *
 * Separate from `parseRecording`, which touches no files.
 */
export function readRecording(path: string): readonly RecordingLine[] {
  let bytes: Buffer;
  try {
    if (statSync(path).size > maxRecordingBytes) throw new Error(`larger than ${maxRecordingBytes} bytes`);
    bytes = readFileSync(path);
    if (bytes[0] === 0x1f && bytes[1] === 0x8b) bytes = gunzipSync(bytes, { maxOutputLength: maxRecordingBytes });
  } catch (cause) {
    throw new WatcherError("BAD_INPUT", `cannot read the recording ${path}`, { cause });
  }
  return parseRecording(bytes.toString("utf8"), path);
}

/** Largest recording, in bytes after decompression: about 512 MiB, the longest string of Node.js. */
export const maxRecordingBytes = constants.MAX_STRING_LENGTH;
