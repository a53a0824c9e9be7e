import { Gauge, type Registry } from "prom-client";

/**
 * Gauge kpng_source_connected. The sources `kube` and `api` report with it whether they are connected to the server
 * that they read from.
 */
export type ConnectedGauge = Gauge<"source" | "kind">;

/**
 * Metric of the sources `kube` and `api`: 1 while the source is connected to its server. The label `kind` is "all"
 * where one stream carries all kinds. A file of its own, because two sources share the metric.
 */
export function makeConnectedGauge(registry: Registry): ConnectedGauge {
  return new Gauge({
    name: "kpng_source_connected",
    help: "1 while the source is connected to its server, 0 from a failure until it receives data again",
    labelNames: ["source", "kind"],
    registers: [registry],
  });
}
