import { Counter, Gauge, type Registry } from "prom-client";

/**
 * Gauge kpng_source_connected. The label `kind` is "all" for the source `api`, whose single stream carries all kinds.
 */
export type ConnectedGauge = Gauge<"source" | "kind">;

export function makeConnectedGauge(registry: Registry): ConnectedGauge {
  return new Gauge({
    name: "kpng_source_connected",
    help: "1 while the source is connected to its server, 0 from a failure until it receives data again",
    labelNames: ["source", "kind"],
    registers: [registry],
  });
}

/** Counter kpng_source_invalid_total. The label `kind` is "files" for the source `file`. */
export type InvalidCounter = Counter<"kind" | "skipped">;

/** Makes the counter, with series of `kinds` that start at 0. */
export function makeInvalidCounter(registry: Registry, kinds: readonly string[]): InvalidCounter {
  const counter = new Counter({
    name: "kpng_source_invalid_total",
    help: "Invalid objects in the input, whose last valid values are kept, and invalid parts, such as one port, without which an object is served",
    labelNames: ["kind", "skipped"],
    registers: [registry],
  });
  for (const kind of kinds) for (const skipped of ["object", "part"]) counter.inc({ kind, skipped }, 0);
  return counter;
}
