import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { Registry } from "prom-client";
import type { Store } from "../../store/store.ts";
import type { ApplyTimings } from "./acknowledgement.ts";
import type { PendingBatch } from "./pending-batches.ts";
import { makeStreamMetrics, type StreamMetrics } from "./stream-metrics.ts";
import { type Delivery, Subscriber, type SubscriberKind } from "./subscriber.ts";

/**
 * Sees what becomes of the batches of all subscribers. It is called for each of them: O(1), and it must not throw. Times
 * are in milliseconds since 1970, with fractions.
 */
export interface DeliveryFollower {
  /** A batch went out whole; see {@link Subscriber.sent}. */
  sent?(subscriber: Subscriber, delivery: Delivery, nowMs: number): void;
  /** It has received a batch. */
  received?(subscriber: Subscriber, batch: PendingBatch): void;
  /** It has applied a batch, and says where the time went or not. */
  applied?(subscriber: Subscriber, batch: PendingBatch, atMs: number, timings: ApplyTimings | undefined): void;
  /** It tried to apply a batch, and could not. */
  failed?(subscriber: Subscriber, batch: PendingBatch, error: string): void;
  /**
   * The stream ended, and of a batch it is not known what became: it was not acknowledged, or by one that never
   * acknowledges not received.
   */
  lost?(subscriber: Subscriber, batch: PendingBatch): void;
}

/**
 * All streams that are open, and what each of them was sent and has applied.
 *
 * *Bound:* one entry for each stream.
 */
export class Subscribers {
  readonly #metrics: StreamMetrics;
  readonly #open = new Set<Subscriber>();
  readonly #followers: DeliveryFollower[] = [];
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

  /** The follower sees what becomes of every batch from now on. */
  observe(follower: DeliveryFollower): void {
    this.#followers.push(follower);
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
      followers: this.#followers,
      now: this.#now,
      close: () => this.#open.delete(subscriber),
    });
    this.#open.add(subscriber);
    return subscriber;
  }
}
