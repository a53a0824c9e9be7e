import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { SyncObserver } from "../types/sync-update.ts";

/** Result of {@link createBackendMetrics}. */
export type BackendMetrics = ReturnType<typeof createBackendMetrics>;

/**
 * Registers the metrics that every backend has. `backendTask` calls it once; observers of the stream
 * (`ConnectionObserver`) and of syncs (`observeSyncs`) update the metrics. Separate from `ProxyMetrics`, kube-proxy's
 * metrics, which only service proxies have.
 */
export function createBackendMetrics(registry: Registry) {
  const registers = [registry];
  const syncs = new Counter({
    name: "kpng_backend_syncs_total",
    help: "Syncs of the backend by result",
    labelNames: ["result"] as const,
    registers,
  });
  // Without the 0, a rate would miss the first failure.
  for (const result of ["ok", "failed"]) syncs.inc({ result }, 0);
  return {
    syncs,
    syncSeconds: new Histogram({
      name: "kpng_backend_sync_duration_seconds",
      help: "Duration of successful syncs",
      buckets: [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
      registers,
    }),
    reconnects: new Counter({
      name: "kpng_backend_reconnects_total",
      help: "Lost streams from the watcher",
      registers,
    }),
    divergences: new Counter({
      name: "kpng_backend_view_divergences_total",
      help: "Views that did not have the digest sent by the watcher; the whole view is then requested",
      registers,
    }),
    olderOffers: new Counter({
      name: "kpng_backend_older_offers_total",
      help: "States of watchers that were refused because they were older than the state before",
      registers,
    }),
    acceptedStates: new Counter({
      name: "kpng_backend_older_states_accepted_total",
      help: "Older states that were accepted, because no watcher offered a newer one for --accept-older-after",
      registers,
    }),
    revision: new Gauge({
      name: "kpng_backend_revision",
      help: "Revision of the watcher's store that was applied last",
      registers,
    }),
    connected: new Gauge({
      name: "kpng_backend_stream_connected",
      help: "1 while a stream from the watcher is in sync",
      registers,
    }),
    fromDisk: new Gauge({
      name: "kpng_backend_view_from_disk",
      help: "1 while the applied view is the saved one, because no watcher has answered since the start",
      registers,
    }),
  };
}

/** Returns the observer that counts and times syncs; `backendTask` registers it. A dry run applies no revision. */
export function observeSyncs({ syncs, syncSeconds, revision }: BackendMetrics, isDryRun = false): SyncObserver {
  return {
    succeeded: (update, { startedAtMs, endedAtMs }) => {
      syncs.inc({ result: "ok" });
      syncSeconds.observe((endedAtMs - startedAtMs) / 1_000);
      if (!isDryRun) revision.set(Number(update.revision));
    },
    failed: () => syncs.inc({ result: "failed" }),
  };
}
