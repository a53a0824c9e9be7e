import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import type { ConnectionState } from "../receive/follow-view.ts";
import type { BackendMetrics } from "./backend-metrics.ts";

const part = "stream";

/**
 * Reports the connection to the watcher in health (part "stream"), metrics and log. `backendTask` passes it each
 * `ConnectionState` of `followView`. Separate from `followView`, which only calls back. Syncs are reported elsewhere:
 * by `SyncLoop` in health and log, by `observeSyncs` in metrics.
 *
 * A lost stream does not make a synced backend unhealthy or unready, because it keeps serving with its last view.
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

  /** True from the first batch of a stream until the stream is lost. */
  get isConnected(): boolean {
    return this.#isConnected;
  }

  /** Reports a change of the connection. */
  report(state: ConnectionState): void {
    if (state.kind === "diverged") {
      this.#metrics.divergences.inc();
      return;
    }
    if (state.kind === "older") {
      this.#metrics.acceptedStates.inc();
      return;
    }
    if (state.kind !== "synced") {
      if (state.kind === "behind") this.#metrics.olderOffers.inc();
      if (state.kind === "lost") this.#metrics.reconnects.inc();
      this.#metrics.connected.set(0);
      this.#isConnected = false;
      // The next stream is opened at once; if that fails, the failure is reported.
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
