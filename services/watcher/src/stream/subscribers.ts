import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { Registry } from "prom-client";
import type { Store } from "../store/store.ts";
import type { ApplyTimings } from "./acknowledgement.ts";
import { makeStreamMetrics, type StreamMetrics } from "./stream-metrics.ts";
import { type Delivery, Subscriber, type SubscriberKind } from "./subscriber.ts";

/**
 * Sees what becomes of the batches of one subscriber. It is called for each of them: O(1), and it must not throw. Times are
 * in milliseconds since 1970, with fractions.
 */
export interface DeliveryFollower {
  /** A batch went out whole; see {@link Subscriber.sent}. */
  sent?(delivery: Delivery, nowMs: number): void;
  /** It has received batches; see {@link Subscriber.receivedRevision}. */
  received?(): void;
  /**
   * What the subscriber says of its revisions, and where the time went if it says that; not called for those that do not
   * acknowledge.
   */
  acknowledged?(nowMs: number, timings: ApplyTimings | undefined): void;
  /** The stream is over; what it had not acknowledged never will be. */
  closed?(): void;
}

/** Begins to follow a subscriber. */
export type Follow = (subscriber: Subscriber) => DeliveryFollower;

/**
 * All streams that are open, and what each of them was sent and has applied.
 *
 * *Bound:* one entry for each stream.
 */
export class Subscribers {
  readonly #metrics: StreamMetrics;
  readonly #open = new Set<Subscriber>();
  readonly #follows: Follow[] = [];
  readonly #now: () => number;
  #lastId = 0;

  constructor(registry: Registry, now: () => number = wallClockMs) {
    this.#metrics = makeStreamMetrics(registry, () => this.#open);
    this.#now = now;
  }

  /** In the order in which they came. */
  get open(): ReadonlySet<Subscriber> {
    return this.#open;
  }

  /** `follow` is called for each subscriber from now on. */
  observe(follow: Follow): void {
    this.#follows.push(follow);
  }

  /** The caller closes it when the stream ends, whatever ends it. */
  add(kind: SubscriberKind, peer: string, store: Store): Subscriber {
    this.#lastId++;
    const subscriber = new Subscriber({
      id: this.#lastId,
      kind,
      peer,
      store,
      metrics: this.#metrics,
      follows: this.#follows,
      now: this.#now,
      close: () => this.#open.delete(subscriber),
    });
    this.#open.add(subscriber);
    return subscriber;
  }
}
