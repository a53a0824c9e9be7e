import { Counter, Gauge, type Registry } from "prom-client";

export interface StreamMetrics {
  readonly subscribers: Gauge<"kind">;
  readonly batches: Counter<"kind">;
  readonly bytes: Counter<"kind">;
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
    bytes: new Counter({
      name: "kpng_sent_bytes_total",
      help: "Bytes of messages sent to subscribers, by kind of view",
      labelNames,
      registers,
    }),
  };
}
