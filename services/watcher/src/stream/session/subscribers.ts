import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { Registry } from "prom-client";
import type { Store } from "../../store/store.ts";
import type { DeliveryFollower, SubscriberKind } from "./delivery.ts";
import { makeStreamMetrics, type StreamMetrics } from "./stream-metrics.ts";
import { Subscriber } from "./subscriber.ts";

/**
 * The subscribers of all open streams, and the followers that observe their batches.
 *
 * *Bound:* one entry for each stream.
 *
 * `routesOptions` creates one for the process; `openLocalWatch` and `openGlobalWatch` add a subscriber for each stream.
 * Separate from `Subscriber`, which is one stream.
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

  /** In the order in which the streams were opened. */
  get open(): ReadonlySet<Subscriber> {
    return this.#open;
  }

  /** The follower observes every batch from now on. */
  observe(follower: DeliveryFollower): void {
    this.#followers.push(follower);
  }

  /** Adds a stream. The caller closes the subscriber when the stream ends, for any reason. */
  add(kind: SubscriberKind, peer: string, store: Store, isTool = false): Subscriber {
    this.#lastId++;
    const subscriber = new Subscriber({
      id: this.#lastId,
      kind,
      peer,
      isTool,
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
