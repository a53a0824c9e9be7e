import { readFileSync, statSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import type { Health } from "@kpng/process/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { aborted, waitMs } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { WatcherError } from "../../watcher-error.ts";
import { receiveOp } from "../api/decode-global.ts";
import { GlobalItems } from "../api/global-items.ts";
import type { ClusterSink, Source } from "../source.ts";
import { parseRecording, type RecordingLine } from "./recording.ts";

export interface ReplaySourceOptions {
  readonly path: string;
  /** How many times as fast as it happened; 0 for all at once. */
  readonly speed: number;
  /** Ends with the last batch up to here, in milliseconds since the recording began; undefined for all. */
  readonly untilMs?: number | undefined;
  readonly sink: ClusterSink;
  readonly log: Log;
  readonly health: Health;
}

const part = "source/replay";

/** Largest recording, in bytes, unpacked: it is read as a whole. */
const maxBytes = 1024 * 1024 * 1024;

/**
 * Plays a recording into the store: each batch becomes a revision, as it did in the watcher that was recorded.
 *
 * It goes on serving the last state when the recording is over.
 *
 * Errors: BAD_INPUT.
 */
export function replaySource(options: ReplaySourceOptions): Source {
  return { name: part, run: (signal) => run(options, signal) };
}

async function run(options: ReplaySourceOptions, signal: AbortSignal): Promise<void> {
  const { path, speed, untilMs = Number.POSITIVE_INFINITY, sink, log, health } = options;
  health.setWaiting(part, "waiting for the recording's first batch");
  const items = new GlobalItems();
  let playedMs = 0;
  let batchCount = 0;
  for (const line of readRecording(path)) {
    if (line.kind !== "op") continue;
    // The first batch is the state at the beginning; that it took its time to come is nothing of the cluster's.
    if (line.atMs > untilMs && batchCount > 0) break;
    if (!receiveOp(line.op, items)) continue;
    if (batchCount > 0 && speed > 0) await waitMs((line.atMs - playedMs) / speed, signal);
    if (signal.aborted) return;
    playedMs = line.atMs;
    const origin = { source: "replay", receivedAtMs: wallClockMs() };
    if (items.isFresh) sink.replace(items.toObjects(), origin);
    else sink.apply(items.toChanges(), origin);
    items.endBatch();
    batchCount += 1;
    health.setReady(part);
  }
  if (batchCount === 0) throw new WatcherError("BAD_INPUT", `${path} has no state of a cluster`);
  log.info("recording played", { batches: batchCount });
  await aborted(signal);
}

/** The lines of a file, packed (gzip) or not. Errors: BAD_INPUT. */
export function readRecording(path: string): readonly RecordingLine[] {
  let bytes: Buffer;
  try {
    if (statSync(path).size > maxBytes) throw new Error(`it is larger than ${maxBytes} bytes`);
    bytes = readFileSync(path);
    if (bytes[0] === 0x1f && bytes[1] === 0x8b) bytes = gunzipSync(bytes, { maxOutputLength: maxBytes });
  } catch (cause) {
    throw new WatcherError("BAD_INPUT", `the recording ${path} cannot be read`, { cause });
  }
  return parseRecording(bytes.toString("utf8"), path);
}
