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

export function makeInvalidCounter(registry: Registry): InvalidCounter {
  return new Counter({
    name: "kpng_source_invalid_total",
    help: "Invalid objects in the input, whose last valid values are kept, and invalid parts, such as one port, without which an object is served",
    labelNames: ["kind", "skipped"],
    registers: [registry],
  });
}

/** Starts the series of a kind at 0. */
export function beginInvalid(counter: InvalidCounter, kind: string): void {
  for (const skipped of ["object", "part"]) counter.inc({ kind, skipped }, 0);
}
