import type { Registry } from "prom-client";
import type { Store } from "../store/store.ts";
import { makeStreamMetrics, type StreamMetrics } from "./stream-metrics.ts";
import { type Delivery, Subscriber, type SubscriberKind } from "./subscriber.ts";

/** Sees what becomes of batches. It is called for each batch of each subscriber: O(1), and it must not throw. */
export interface DeliveryObserver {
  /** A batch went out whole; see {@link Subscriber.sent}. */
  sent?(subscriber: Subscriber, delivery: Delivery): void;
  /** It asks for what comes after the last batch: so it has received that. */
  received?(subscriber: Subscriber): void;
  /** What the subscriber says of its revisions; not called for those that do not acknowledge. */
  acknowledged?(subscriber: Subscriber): void;
  /** The stream is over; what it had not acknowledged never will be. */
  closed?(subscriber: Subscriber): void;
}

/**
 * All streams that are open, and what each of them was sent and has applied.
 *
 * *Bound:* one entry for each stream.
 */
export class Subscribers {
  readonly #metrics: StreamMetrics;
  readonly #open = new Set<Subscriber>();
  readonly #observers = new Set<DeliveryObserver>();
  #lastId = 0;

  constructor(registry: Registry) {
    this.#metrics = makeStreamMetrics(registry, () => this.#open);
  }

  /** In the order in which they came. */
  get open(): ReadonlySet<Subscriber> {
    return this.#open;
  }

  observe(observer: DeliveryObserver): void {
    this.#observers.add(observer);
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
      observers: this.#observers,
      close: () => this.#open.delete(subscriber),
    });
    this.#open.add(subscriber);
    return subscriber;
  }
}
