import { Counter, Gauge, Histogram, type Registry } from "prom-client";

/** Registers the metrics of streams. `open` returns the open streams, at each scrape. */
export function makeStreamMetrics(registry: Registry, open: () => Iterable<SubscriberState>): StreamMetrics {
  const registers = [registry];
  const labelNames = ["kind"] as const;
  new Gauge({
    name: "kpng_subscribers_failing",
    help: "Subscribers that could not apply the last batch",
    registers,
    collect() {
      this.set(count(open(), (one) => one.failure !== undefined));
    },
  });
  new Gauge({
    name: "kpng_subscribers_behind",
    help: "Subscribers that have not applied all batches sent to them",
    registers,
    collect() {
      this.set(count(open(), (one) => one.unappliedSinceMs !== undefined));
    },
  });
  new Gauge({
    name: "kpng_oldest_unapplied_seconds",
    help: "Age of the oldest batch that a subscriber has not applied; 0 if all have applied everything",
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
    help: "Open streams, by kind of view",
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
      help: "Time from when a subscriber was sent a batch until it had applied it",
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
      registers,
    }),
    applyFailures: new Counter({
      name: "kpng_apply_failures_total",
      help: "Revisions that subscribers reported as failed",
      registers,
    }),
  };
}

/** The state of a subscriber that metrics count. */
interface SubscriberState {
  readonly failure: unknown;
  readonly unappliedSinceMs: number | undefined;
}

/** The metrics that subscribers update themselves; the others are computed at each scrape. */
export interface StreamMetrics {
  readonly subscribers: Gauge<"kind">;
  readonly sent: Readonly<Record<(typeof kinds)[number], Tally>>;
  readonly applySeconds: Histogram;
  readonly applyFailures: Counter;
}

/** Sent batches and their bytes. Cheaper than a counter with labels, which is set when metrics are collected. */
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

const kinds = ["local", "global"] as const;

function count<T>(items: Iterable<T>, holds: (item: T) => boolean): number {
  let found = 0;
  for (const item of items) if (holds(item)) found++;
  return found;
}
