import { addCounter, addGauge } from "@kpng/process/health/metrics.ts";
import { type Counter, Gauge, Histogram, type Registry } from "prom-client";

/**
 * Registers the metrics of streams. At each scrape, `open` returns the open streams, and `now` returns the time in
 * milliseconds since 1970.
 */
export function makeStreamMetrics(
  registry: Registry,
  open: () => Iterable<SubscriberState>,
  now: () => number,
): StreamMetrics {
  const count = (holds: (one: SubscriberState) => boolean): number => [...open()].filter(holds).length;
  addGauge(registry, "kpng_subscribers_failing", "Subscribers that could not apply the last batch", () =>
    count((one) => one.failure !== undefined),
  );
  const oldestHelp = "Age of the oldest batch that a subscriber has not applied; 0 if all have applied everything";
  addGauge(registry, "kpng_oldest_unapplied_seconds", oldestHelp, () => {
    const nowMs = now();
    let oldestMs = nowMs;
    for (const { unappliedSinceMs } of open()) oldestMs = Math.min(oldestMs, unappliedSinceMs ?? nowMs);
    return (nowMs - oldestMs) / 1_000;
  });
  new Gauge({
    name: "kpng_subscribers",
    help: "Open streams, by kind of view",
    labelNames: ["kind"],
    registers: [registry],
    collect() {
      for (const kind of kinds)
        this.set(
          { kind },
          count((one) => one.kind === kind),
        );
    },
  });
  return {
    sentBytes: addCounter(
      registry,
      "kpng_sent_bytes_total",
      "Bytes of messages sent to subscribers, by kind of view",
      "kind",
      kinds,
    ),
    applySeconds: new Histogram({
      name: "kpng_apply_seconds",
      help: "Time from when a subscriber was sent a batch until it had applied it",
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
      registers: [registry],
    }),
  };
}

/** The state of a subscriber that metrics count. */
interface SubscriberState {
  readonly kind: string;
  readonly failure: unknown;
  readonly unappliedSinceMs: number | undefined;
}

/** The metrics that subscribers update themselves; the others are computed at each scrape. */
export interface StreamMetrics {
  readonly sentBytes: Counter<"kind">;
  readonly applySeconds: Histogram;
}

const kinds = ["local", "global"] as const;
