import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { Subscriber, SubscriberKind } from "./subscriber.ts";

export interface StreamMetrics {
  readonly subscribers: Gauge<"kind">;
  readonly sent: Readonly<Record<SubscriberKind, Tally>>;
  readonly applySeconds: Histogram;
  readonly applyFailures: Counter;
}

/** What was sent, counted at each batch and given to the counters when somebody asks: a counter with labels costs more. */
export class Tally {
  #batches = 0;
  #bytes = 0;

  add(byteCount: number): void {
    this.#batches += 1;
    this.#bytes += byteCount;
  }

  get batches(): number {
    return this.#batches;
  }

  get bytes(): number {
    return this.#bytes;
  }
}

const kinds = ["local", "global"] as const satisfies SubscriberKind[];

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
  for (const kind of kinds) subscribers.set({ kind }, 0);
  const sent = { local: new Tally(), global: new Tally() };
  const addCounter = (name: string, help: string, read: (tally: Tally) => number): void => {
    new Counter({
      name,
      help,
      labelNames,
      registers,
      collect() {
        this.reset();
        for (const kind of kinds) this.inc({ kind }, read(sent[kind]));
      },
    });
  };
  addCounter("kpng_batches_total", "Batches sent to subscribers, by kind of view", ({ batches }) => batches);
  addCounter("kpng_sent_bytes_total", "Bytes of messages sent to subscribers, by kind of view", ({ bytes }) => bytes);
  return {
    subscribers,
    sent,
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
