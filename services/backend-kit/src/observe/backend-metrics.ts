import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { SyncObserver } from "../types/sync-update.ts";

/** What every backend measures. */
export interface BackendMetrics {
  /** By result: "ok" or "failed". */
  readonly syncs: Counter<"result">;
  /** Of those that succeeded. */
  readonly syncSeconds: Histogram;
  /** Streams that were lost. */
  readonly reconnects: Counter;
  /** Views that were not what the watcher meant. */
  readonly divergences: Counter;
  /** Of the watcher's store, last applied; 0 from a Go watcher. */
  readonly revision: Gauge;
  /** 1 from a sync marker until the stream is lost, else 0. */
  readonly connected: Gauge;
  /** 1 while the view in force came from this node's disk, because no watcher has answered since the start. */
  readonly fromDisk: Gauge;
}

export function createBackendMetrics(registry: Registry): BackendMetrics {
  const registers = [registry];
  const syncs = new Counter({
    name: "kpng_backend_syncs_total",
    help: "Syncs of the backend by result",
    labelNames: ["result"] as const,
    registers,
  });
  // A rate over a series that appears with its first failure misses that failure.
  for (const result of ["ok", "failed"]) syncs.inc({ result }, 0);
  return {
    syncs,
    syncSeconds: new Histogram({
      name: "kpng_backend_sync_duration_seconds",
      help: "Duration of the syncs that succeeded",
      buckets: [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
      registers,
    }),
    reconnects: new Counter({
      name: "kpng_backend_reconnects_total",
      help: "Streams from the watcher that were lost and opened again",
      registers,
    }),
    divergences: new Counter({
      name: "kpng_backend_view_divergences_total",
      help: "Views that were not what the watcher meant by their digest; each was asked for as a whole",
      registers,
    }),
    revision: new Gauge({
      name: "kpng_backend_revision",
      help: "Revision of the watcher's store that was last applied",
      registers,
    }),
    connected: new Gauge({
      name: "kpng_backend_stream_connected",
      help: "1 while a stream from the watcher is in sync",
      registers,
    }),
    fromDisk: new Gauge({
      name: "kpng_backend_view_from_disk",
      help: "1 while the view in force was read from disk because no watcher has answered since the start",
      registers,
    }),
  };
}

/** Counts and times the syncs of a loop. */
export function observeSyncs({ syncs, syncSeconds, revision }: BackendMetrics): SyncObserver {
  return {
    succeeded: (update, { startedAtMs, endedAtMs }) => {
      syncs.inc({ result: "ok" });
      syncSeconds.observe((endedAtMs - startedAtMs) / 1_000);
      revision.set(Number(update.revision));
    },
    failed: () => syncs.inc({ result: "failed" }),
  };
}
