import { Counter, Gauge, type Registry } from "prom-client";

/** Why the watcher ends a connection. */
export type EndReason = "age" | "drain" | "idle" | "silent";

export interface ConnectionMetrics {
  readonly ended: Counter<"reason">;
}

export function makeConnectionMetrics(registry: Registry, count: () => number): ConnectionMetrics {
  const registers = [registry];
  new Gauge({
    name: "kpng_connections",
    help: "Connections that are open",
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
  for (const reason of ["age", "drain", "idle", "silent"] satisfies EndReason[]) ended.inc({ reason }, 0);
  return { ended };
}
