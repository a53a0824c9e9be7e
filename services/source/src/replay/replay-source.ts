import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { aborted, waitMs } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { GlobalItems } from "../api/global-items.ts";
import type { ClusterSink, Source } from "../source.ts";
import { WatcherError } from "../watcher-error.ts";
import { readRecording } from "./recording.ts";

interface ReplaySourceOptions {
  /** Path of the recording. */
  readonly path: string;
  /** Playback speed: 2 plays twice as fast as recorded, 0 plays without delays. */
  readonly speed: number;
  readonly sink: ClusterSink;
  readonly log: Log;
  readonly health: Health;
}

const part = "source/replay";

/**
 * Plays a recording made with `kpng record` into the sink; each batch becomes at most one revision. At the end, the
 * source keeps the last state until it is aborted. Errors: BAD_INPUT for an invalid recording.
 */
export function replaySource(options: ReplaySourceOptions): Source {
  return { name: part, run: (signal) => run(options, signal) };
}

async function run(options: ReplaySourceOptions, signal: AbortSignal): Promise<void> {
  const { path, speed, sink, log, health } = options;
  health.setWaiting(part, "waiting for the first batch of the recording");
  const items = new GlobalItems();
  let playedMs = 0;
  let batchCount = 0;
  const { lines, isTruncated } = readRecording(path);
  // The log has no level for warnings.
  if (isTruncated) log.error("the recording is truncated: its end is missing", { path });
  for (const line of lines) {
    if (line.kind !== "op") continue;
    if (!items.apply(line.op)) continue;
    if (batchCount > 0 && speed > 0) await waitMs((line.atMs - playedMs) / speed, signal);
    if (signal.aborted) return;
    playedMs = line.atMs;
    items.deliverTo(sink, { source: "replay", receivedAtMs: wallClockMs() });
    batchCount += 1;
    health.setReady(part);
  }
  if (batchCount === 0) throw new WatcherError("BAD_INPUT", `${path} contains no cluster state`);
  log.info("recording played", { batches: batchCount });
  // Keeps Node.js running while a backend in this process waits for the next state.
  const alive = setInterval(() => undefined, 60_000);
  await aborted(signal);
  clearInterval(alive);
}
