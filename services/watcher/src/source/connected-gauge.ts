import { Gauge, type Registry } from "prom-client";

/**
 * Gauge kpng_source_connected: 1 while a source is connected to its server. The label `kind` is the kind of object, or
 * "all" for the source `api`, whose one stream carries all kinds.
 */
export type ConnectedGauge = Gauge<"source" | "kind">;

/** Registers the gauge. */
export function makeConnectedGauge(registry: Registry): ConnectedGauge {
  return new Gauge({
    name: "kpng_source_connected",
    help: "1 while the source is connected to its server, 0 from a failure until it receives data again",
    labelNames: ["source", "kind"],
    registers: [registry],
  });
}
