import { Counter, Gauge, type Registry } from "prom-client";

const endReasons = ["age", "ca", "drain", "idle", "silent", "stale"] as const;

/** Why the watcher ended a connection; values of the label `reason` of kpng_connections_ended_total. */
export type EndReason = (typeof endReasons)[number];

/**
 * Metrics of `Connections`, which registers them once and counts with them. Separate from it, so that `npm run docs`
 * can list them without a server.
 */
export interface ConnectionMetrics {
  readonly ended: Counter<"reason">;
}

/** Registers the metrics. `count` returns the number of open connections. */
export function makeConnectionMetrics(registry: Registry, count: () => number): ConnectionMetrics {
  const registers = [registry];
  new Gauge({
    name: "kpng_connections",
    help: "Open connections of clients",
    registers,
    collect() {
      this.set(count());
    },
  });
  const ended = new Counter({
    name: "kpng_connections_ended_total",
    help: "Connections that the watcher ended, by reason",
    labelNames: ["reason"],
    registers,
  });
  for (const reason of endReasons) ended.inc({ reason }, 0);
  return { ended };
}
