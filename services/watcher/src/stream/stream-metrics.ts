import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { Subscriber, SubscriberKind } from "./subscriber.ts";

export interface StreamMetrics {
  readonly subscribers: Gauge<"kind">;
  readonly batches: Counter<"kind">;
  readonly bytes: Counter<"kind">;
  readonly applySeconds: Histogram;
  readonly applyFailures: Counter;
}

/** `open` gives the streams that are open, at each scrape. */
export function makeStreamMetrics(registry: Registry, open: () => Iterable<Subscriber>): StreamMetrics {
  const registers = [registry];
  const labelNames = ["kind"] as const;
  new Gauge({
    name: "kpng_subscribers_failing",
    help: "Subscribers whose last attempt to apply what they received failed",
    registers,
    collect() {
      this.set(count(open(), (one) => one.failure !== undefined));
    },
  });
  new Gauge({
    name: "kpng_subscribers_behind",
    help: "Subscribers that have not applied something that they were sent",
    registers,
    collect() {
      this.set(count(open(), (one) => one.unappliedSinceMs !== undefined));
    },
  });
  new Gauge({
    name: "kpng_oldest_unapplied_seconds",
    help: "For how long the subscriber that is furthest behind has not applied what it was sent; 0 if none is behind",
    registers,
    collect() {
      const nowMs = Date.now();
      let oldestMs = nowMs;
      for (const { unappliedSinceMs } of open()) oldestMs = Math.min(oldestMs, unappliedSinceMs ?? nowMs);
      this.set((nowMs - oldestMs) / 1_000);
    },
  });
  const subscribers = new Gauge({
    name: "kpng_subscribers",
    help: "Streams that are open, by kind of view",
    labelNames,
    registers,
  });
  const batches = new Counter({
    name: "kpng_batches_total",
    help: "Batches sent to subscribers, by kind of view",
    labelNames,
    registers,
  });
  const bytes = new Counter({
    name: "kpng_sent_bytes_total",
    help: "Bytes of messages sent to subscribers, by kind of view",
    labelNames,
    registers,
  });
  for (const kind of ["local", "global"] satisfies SubscriberKind[]) {
    subscribers.set({ kind }, 0);
    batches.inc({ kind }, 0);
    bytes.inc({ kind }, 0);
  }
  return {
    subscribers,
    batches,
    bytes,
    applySeconds: new Histogram({
      name: "kpng_apply_seconds",
      help: "Time from when a subscriber was sent a batch until it said that it has applied it",
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
      registers,
    }),
    applyFailures: new Counter({
      name: "kpng_apply_failures_total",
      help: "Revisions that a subscriber said it could not apply",
      registers,
    }),
  };
}

function count<T>(items: Iterable<T>, holds: (item: T) => boolean): number {
  let found = 0;
  for (const item of items) if (holds(item)) found++;
  return found;
}
