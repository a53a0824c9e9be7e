import { Counter, Gauge, type Registry } from "prom-client";

/**
 * Why the watcher ended a connection; values of the label `reason` of kpng_connections_ended_total. `Connections`
 * counts with the metrics of this file.
 */
export type EndReason = "age" | "ca" | "drain" | "idle" | "silent" | "stale";

/** Metrics of `Connections`. */
export interface ConnectionMetrics {
  readonly ended: Counter<"reason">;
}

/** Registers the metrics; `Connections` calls it once. `count` returns the number of open connections. */
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
  for (const reason of ["age", "ca", "drain", "idle", "silent", "stale"] satisfies EndReason[])
    ended.inc({ reason }, 0);
  return { ended };
}
