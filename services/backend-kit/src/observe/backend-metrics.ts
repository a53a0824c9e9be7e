import type { Health } from "@kpng/process/health/health.ts";
import { addCounter } from "@kpng/process/health/metrics.ts";
import type { Log } from "@kpng/process/log.ts";
import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { ConnectionState } from "../receive/follow-view.ts";
import type { SyncObserver, ViewUpdate } from "../types/sync-update.ts";

export type BackendMetrics = ReturnType<typeof createBackendMetrics>;

const results = ["ok", "failed"];

export function createBackendMetrics(registry: Registry) {
  const registers = [registry];
  const counter = (name: string, help: string) => new Counter({ name, help, registers });
  const gauge = (name: string, help: string) => new Gauge({ name, help, registers });
  return {
    syncs: addCounter(registry, "kpng_backend_syncs_total", "Syncs of the backend by result", "result", results),
    syncSeconds: new Histogram({
      name: "kpng_backend_sync_duration_seconds",
      help: "Duration of successful syncs",
      buckets: [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
      registers,
    }),
    reconnects: counter("kpng_backend_reconnects_total", "Lost streams from the watcher"),
    divergences: counter(
      "kpng_backend_view_divergences_total",
      "Views that did not have the digest sent by the watcher; the whole view is then requested",
    ),
    olderStates: addCounter(
      registry,
      "kpng_backend_older_states_total",
      "Offers of a state older than the one before; accepted if no watcher offers a newer one for --accept-older-after",
      "result",
      ["refused", "accepted"],
    ),
    revision: gauge("kpng_backend_revision", "Revision of the watcher's store that was applied last"),
    connected: gauge("kpng_backend_stream_connected", "1 while a stream from the watcher is in sync"),
    fromDisk: gauge(
      "kpng_backend_view_from_disk",
      "1 while the applied view is the saved one, because no watcher has answered since the start",
    ),
  };
}

/** Returns the observer that counts and times syncs. A dry run applies no revision. */
export function observeSyncs({ syncs, syncSeconds, revision }: BackendMetrics, isDryRun = false): SyncObserver {
  const applied = (update: ViewUpdate): void => {
    if (!isDryRun) revision.set(Number(update.revision));
  };
  return {
    // E.g. the first update of a restarted watcher, which counts its revisions from the start again.
    settled: applied,
    succeeded: (update, { startedAtMs, endedAtMs }) => {
      syncs.inc({ result: "ok" });
      syncSeconds.observe((endedAtMs - startedAtMs) / 1_000);
      applied(update);
    },
    failed: () => syncs.inc({ result: "failed" }),
  };
}

const part = "stream";

/**
 * Reports the connection to the watcher in health (part "stream"), metrics and log.
 *
 * A lost stream does not make a synced backend unhealthy or unready, because the backend keeps serving with its last
 * view.
 */
export class ConnectionObserver {
  readonly #health: Health;
  readonly #metrics: BackendMetrics;
  readonly #log: Log;
  #hasSynced = false;
  #isConnected = false;

  constructor(health: Health, metrics: BackendMetrics, log: Log) {
    this.#health = health;
    this.#metrics = metrics;
    this.#log = log;
    health.setWaiting(part, "waiting for the watcher's first sync marker");
  }

  /** True from a stream's first batch until the stream is lost. */
  get isConnected(): boolean {
    return this.#isConnected;
  }

  report(state: ConnectionState): void {
    if (state.kind === "diverged") this.#metrics.divergences.inc();
    if (state.kind === "older") this.#metrics.olderStates.inc({ result: "accepted" });
    if (state.kind === "behind") this.#metrics.olderStates.inc({ result: "refused" });
    if (state.kind === "lost") this.#metrics.reconnects.inc();
    if (state.kind === "diverged" || state.kind === "older") return;
    if (state.kind !== "synced") {
      this.#metrics.connected.set(0);
      this.#isConnected = false;
      // The next stream is opened immediately; if that fails, the failure is reported.
      if (state.kind === "moved") return;
      const reason = `keeping the last view: ${state.reason}`;
      if (this.#hasSynced) this.#health.set(part, { isHealthy: true, isReady: true, reason });
      else this.#health.setWaiting(part, state.reason);
      return;
    }
    this.#metrics.connected.set(1);
    if (!this.#isConnected) {
      this.#log.info("stream in sync", { revision: Number(state.revision) });
      this.#health.setReady(part);
    }
    this.#isConnected = true;
    this.#hasSynced = true;
  }
}

interface KnownNodeOptions {
  readonly nodeName: string;
  readonly health: Health;
  readonly log: Log;
  readonly metrics: Registry;
}

/**
 * Returns a function, to be called for each view, that reports whether the cluster has a Node of this name. A wrong
 * `--node-name` would otherwise go unnoticed, because it yields a valid view without endpoints on the node.
 *
 * The health part "node" stays ready, because a machine that joins the cluster gets its Node only later. Go watchers
 * send no Nodes, so nothing is reported for them.
 */
export function observeKnownNode({ nodeName, health, log, metrics }: KnownNodeOptions) {
  const gauge = new Gauge({
    name: "kpng_backend_node_known",
    help: "1 unless the watcher's cluster has no Node of the name that the backend follows",
    registers: [metrics],
  });
  gauge.set(1);
  let wasKnown: boolean | undefined;
  return ({ view, instance }: Pick<ViewUpdate, "view" | "instance">): void => {
    const isKnown = view.node !== undefined;
    if (instance === "" || isKnown === wasKnown) return;
    if (!isKnown) log.error("the cluster has no Node of this name", { nodeName });
    else if (wasKnown === false) log.info("the cluster has a Node of this name now", { nodeName });
    wasKnown = isKnown;
    gauge.set(isKnown ? 1 : 0);
    const reason = isKnown ? "" : "the cluster has no Node of this name: check --node-name";
    health.set("node", { isHealthy: true, isReady: true, reason });
  };
}
