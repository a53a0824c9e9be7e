import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { Gauge, Histogram, type Registry } from "prom-client";
import type { Store } from "../../store/store.ts";
import type { Update } from "../../store/update.ts";
import type { PendingBatch } from "./pending-batches.ts";
import type { Subscriber } from "./subscriber.ts";
import type { DeliveryFollower, Subscribers } from "./subscribers.ts";

/** How many revisions may wait for their last node. */
const size = 16_384;

/**
 * Measures how long a change takes until the last node has applied it: the last of those that were told of it and say
 * what they apply.
 *
 * When a revision has been applied is written down with each acknowledgement; whether it has been everywhere is found out
 * when somebody asks for the metrics, or when there is no room for more.
 *
 * *Bound:* {@link size} revisions, 256 KiB. *Cost:* of an acknowledgement, one number for each revision that it is the
 * first to cover; of a scrape, one look at each subscriber.
 */
export class Convergence implements DeliveryFollower {
  readonly #open: Iterable<Subscriber>;
  readonly #seconds: Histogram;
  /** By revision modulo the size, in milliseconds since 1970; 0 for a revision that nobody is waited for. */
  readonly #storedAtMs = new Float64Array(size);
  readonly #appliedAtMs = new Float64Array(size);
  #newest = 0;
  /** All up to this one have been measured. */
  #measured = 0;

  constructor({ open, registry }: { readonly open: Iterable<Subscriber>; readonly registry: Registry }) {
    this.#open = open;
    const registers = [registry];
    this.#seconds = new Histogram({
      name: "kpng_convergence_seconds",
      help: "Time from when a change was stored until the last subscriber that it concerns said that it has applied it",
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800],
      registers,
      collect: () => this.measure(),
    });
    const unapplied = (): number => this.#newest - this.#everywhere();
    new Gauge({
      name: "kpng_revisions_unapplied",
      help: "How many of the newest revisions some subscriber has not applied yet",
      registers,
      collect() {
        this.set(unapplied());
      },
    });
  }

  /** For Store.observe. */
  add({ before, next: { revision, storedAtMs } }: Update): void {
    if (revision - this.#measured > size) this.#makeRoom();
    this.#newest = revision;
    // What a source lists first is nobody's change.
    this.#storedAtMs[revision % size] = before.isSynced ? storedAtMs : 0;
    this.#appliedAtMs[revision % size] = 0;
  }

  applied(_subscriber: Subscriber, { after, revision: upTo }: PendingBatch, atMs: number): void {
    // A whole view is no news of a change.
    if (after === 0) return;
    for (let revision = Math.max(after, this.#measured) + 1; revision <= upTo; revision += 1) {
      const index = revision % size;
      if (atMs > (this.#appliedAtMs[index] ?? 0)) this.#appliedAtMs[index] = atMs;
    }
  }

  /** Measures the revisions that have been applied everywhere since it was called last. */
  measure(): void {
    this.#measureUpTo(this.#everywhere());
  }

  /** Of the oldest quarter, what some have applied and others not counts with the age at which it is forgotten. */
  #makeRoom(): void {
    this.measure();
    const forgotten = this.#newest - (size * 3) / 4;
    const nowMs = wallClockMs();
    for (let revision = this.#measured + 1; revision <= forgotten; revision += 1) {
      if (this.#appliedAtMs[revision % size] !== 0) this.#appliedAtMs[revision % size] = nowMs;
    }
    this.#measureUpTo(forgotten);
  }

  #measureUpTo(last: number): void {
    for (; this.#measured < last; this.#measured += 1) {
      const index = (this.#measured + 1) % size;
      const storedAtMs = this.#storedAtMs[index] ?? 0;
      const appliedAtMs = this.#appliedAtMs[index] ?? 0;
      if (storedAtMs !== 0 && appliedAtMs !== 0) this.#seconds.observe(Math.max(0, appliedAtMs - storedAtMs) / 1_000);
    }
  }

  /** The newest revision of which no subscriber that says what it applies has anything left. */
  #everywhere(): number {
    let lowest = this.#newest;
    for (const subscriber of this.#open) {
      if (subscriber.hasAcknowledged) lowest = Math.min(lowest, subscriber.appliedRevision);
    }
    return lowest;
  }
}

/** Measures from now on what becomes of this store's changes. */
export function observeConvergence(store: Store, subscribers: Subscribers, registry: Registry): void {
  const convergence = new Convergence({ open: subscribers.open, registry });
  store.observe((update) => convergence.add(update));
  subscribers.observe(convergence);
}
