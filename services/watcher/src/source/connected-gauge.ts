import { Gauge, type Registry } from "prom-client";

export type ConnectedGauge = Gauge<"source" | "kind">;

/** Of a source that follows a server: 1 while it hears from it. The kind is "all" where one stream carries all kinds. */
export function makeConnectedGauge(registry: Registry): ConnectedGauge {
  return new Gauge({
    name: "kpng_source_connected",
    help: "1 while the source follows its server, 0 from a failure until it hears from it again",
    labelNames: ["source", "kind"],
    registers: [registry],
  });
}
