import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import type { ConnectionState } from "../receive/follow-view.ts";
import type { BackendMetrics } from "./backend-metrics.ts";

const part = "stream";

/**
 * A backend that has synced once serves on without a watcher, so a loss alone does not make it unhealthy or unready.
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

  /** True from a sync marker until there is no stream. */
  get isConnected(): boolean {
    return this.#isConnected;
  }

  tell(state: ConnectionState): void {
    if (state.kind === "diverged") {
      this.#metrics.divergences.inc();
      return;
    }
    if (state.kind !== "synced") {
      if (state.kind === "lost") this.#metrics.reconnects.inc();
      this.#metrics.connected.set(0);
      this.#isConnected = false;
      // The next stream follows at once, or what goes wrong with it is told.
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
