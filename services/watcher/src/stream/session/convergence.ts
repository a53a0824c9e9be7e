import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { Gauge, Histogram, type Registry } from "prom-client";
import type { Update } from "../../store/snapshot.ts";
import type { Store } from "../../store/store.ts";
import type { DeliveryFollower, PendingBatch, Recipient, Subscriber, Subscribers } from "./subscribers.ts";

/**
 * Measures the time from when a change is stored until the last node that it concerns has applied it. Counts only nodes
 * that acknowledge.
 *
 * Each acknowledgement records when its revisions were applied. Whether all nodes have applied a revision is computed
 * when metrics are collected, or when the buffer is full.
 *
 * *Bound:* {@link size} revisions, 256 KiB. *Cost:* for an acknowledgement, one number for each revision that it covers
 * first; for a scrape, one comparison for each subscriber.
 */
class Convergence implements DeliveryFollower {
  readonly #open: Iterable<Subscriber>;
  readonly #seconds: Histogram;
  /** By revision modulo the size, in milliseconds since 1970; 0 for a revision that is not measured. */
  readonly #storedAtMs = new Float64Array(size);
  readonly #appliedAtMs = new Float64Array(size);
  #newest = 0;
  /** The newest revision up to which all are measured. */
  #measured = 0;

  constructor({ open, registry }: { readonly open: Iterable<Subscriber>; readonly registry: Registry }) {
    this.#open = open;
    const registers = [registry];
    this.#seconds = new Histogram({
      name: "kpng_convergence_seconds",
      help: "Time from when a change was stored until the last subscriber that it concerns acknowledged it",
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800],
      registers,
      collect: () => this.measure(),
    });
    const unapplied = (): number => this.#newest - this.#appliedByAll();
    new Gauge({
      name: "kpng_revisions_unapplied",
      help: "Number of the newest revisions that some subscriber has not applied yet",
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
    // The first list of a source is not a change.
    this.#storedAtMs[revision % size] = before.isSynced ? storedAtMs : 0;
    this.#appliedAtMs[revision % size] = 0;
  }

  applied(_recipient: Recipient, { after, revision: upTo }: PendingBatch, atMs: number): void {
    // A whole view is sent because a stream begins, not because of a change.
    if (after === 0) return;
    for (let revision = Math.max(after, this.#measured) + 1; revision <= upTo; revision += 1) {
      const index = revision % size;
      if (atMs > (this.#appliedAtMs[index] ?? 0)) this.#appliedAtMs[index] = atMs;
    }
  }

  /** Measures the revisions that all nodes have applied since the last call. */
  measure(): void {
    this.#measureUpTo(this.#appliedByAll());
  }

  /** Drops the oldest quarter. A revision that some nodes have not applied counts with its age at this moment. */
  #makeRoom(): void {
    this.measure();
    const dropped = this.#newest - (size * 3) / 4;
    const nowMs = wallClockMs();
    for (let revision = this.#measured + 1; revision <= dropped; revision += 1) {
      if (this.#appliedAtMs[revision % size] !== 0) this.#appliedAtMs[revision % size] = nowMs;
    }
    this.#measureUpTo(dropped);
  }

  #measureUpTo(last: number): void {
    for (; this.#measured < last; this.#measured += 1) {
      const index = (this.#measured + 1) % size;
      const storedAtMs = this.#storedAtMs[index] ?? 0;
      const appliedAtMs = this.#appliedAtMs[index] ?? 0;
      if (storedAtMs !== 0 && appliedAtMs !== 0) this.#seconds.observe(Math.max(0, appliedAtMs - storedAtMs) / 1_000);
    }
  }

  /** Returns the newest revision that every acknowledging subscriber has applied. */
  #appliedByAll(): number {
    let lowest = this.#newest;
    for (const subscriber of this.#open) {
      if (subscriber.hasAcknowledged) lowest = Math.min(lowest, subscriber.appliedRevision);
    }
    return lowest;
  }
}

/** Maximum number of revisions that some node has not applied. */
const size = 16_384;

/** Starts to measure the convergence of this store's changes. */
export function observeConvergence(store: Store, subscribers: Subscribers, registry: Registry): void {
  const convergence = new Convergence({ open: subscribers.open, registry });
  store.observe((update) => convergence.add(update));
  subscribers.observe(convergence);
}
