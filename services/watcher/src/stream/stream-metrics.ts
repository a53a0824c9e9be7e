import { Counter, Gauge, type Registry } from "prom-client";

export interface StreamMetrics {
  readonly subscribers: Gauge<"kind">;
  readonly batches: Counter<"kind">;
  readonly operations: Counter<"kind">;
}

export function makeStreamMetrics(registry: Registry): StreamMetrics {
  const registers = [registry];
  const labelNames = ["kind"] as const;
  return {
    subscribers: new Gauge({
      name: "kpng_subscribers",
      help: "Streams that are open, by kind of view",
      labelNames,
      registers,
    }),
    batches: new Counter({
      name: "kpng_batches_total",
      help: "Batches sent to subscribers, by kind of view",
      labelNames,
      registers,
    }),
    operations: new Counter({
      name: "kpng_operations_total",
      help: "Operations sent to subscribers without Reset and Sync, by kind of view",
      labelNames,
      registers,
    }),
  };
}
