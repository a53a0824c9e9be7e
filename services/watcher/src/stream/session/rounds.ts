import { Wakeup } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import type { Store } from "../../store/store.ts";
import type { Changes, Projection } from "../delta/projection.ts";
import type { Scheduler } from "./scheduler.ts";

/**
 * Advances all subscribers of a store from one snapshot to the next in rounds. While some subscribers wait for their
 * turn, the target snapshot stays the same; later changes belong to the next round. If each subscriber advanced to the
 * newest snapshot at its turn, soon no two of them would advance between the same two snapshots, and each difference
 * would be computed, encoded and compressed for a single subscriber.
 *
 * A change that arrives outside a round starts a round immediately. First batches get their share of the thread between
 * two rounds, and during any round that takes longer than 100 ms; see `Scheduler`.
 *
 * *Bound:* one entry for each waiting subscriber.
 */
export class Rounds {
  readonly #store: Store;
  readonly #scheduler: Scheduler;
  /** The subscribers that wait for the next round. */
  readonly #subscribers = new Wakeup();
  readonly #onStored = (): void => this.#begin();
  readonly #onDone = (): void => this.#end();
  readonly #onNext = (): void => {
    this.#isInProgress = false;
    if (this.#subscribers.waitingCount > 0) this.#begin();
  };
  #target: Snapshot;
  #isInProgress = false;

  constructor(store: Store, scheduler: Scheduler) {
    this.#store = store;
    this.#scheduler = scheduler;
    this.#target = store.snapshot;
  }

  /** The target snapshot of the round in progress; if there is no round, the newest snapshot. */
  get snapshot(): Snapshot {
    if (!this.#isInProgress) this.#target = this.#store.snapshot;
    return this.#target;
  }

  /** Calls `callback` once, when the next round begins, unless `cancelNext` is called first. */
  callNext(callback: () => void): void {
    this.#subscribers.call(callback);
    if (!this.#isInProgress) this.#store.callNext(this.#onStored);
  }

  cancelNext(callback: () => void): void {
    this.#subscribers.cancel(callback);
    if (this.#subscribers.waitingCount === 0) this.#store.cancelNext(this.#onStored);
  }

  #begin(): void {
    if (this.#isInProgress) return;
    this.#target = this.#store.snapshot;
    this.#isInProgress = true;
    this.#subscribers.wake();
    this.#scheduler.schedule("round", this.#onDone);
  }

  /** Ends the round, after all its subscribers have had their turn. */
  #end(): void {
    if (this.#store.snapshot !== this.#target) {
      // Pending requests are read first, so that their subscribers take part in the next round from its start. There
      // are two turns, because the event loop may run the first callback before it reads the sockets again.
      setImmediate(() => setImmediate(this.#onNext));
      return;
    }
    this.#isInProgress = false;
    if (this.#subscribers.waitingCount > 0) this.#store.callNext(this.#onStored);
  }
}

/**
 * The snapshot that was last sent to one subscriber. Its next batch is the difference from this snapshot to the target
 * of the round. A subscriber that lags keeps its snapshot in memory, but shares all objects that have not been replaced
 * since.
 */
export class Subscription {
  readonly #rounds: Pick<Rounds, "snapshot">;
  readonly #now: () => number;
  #projection: Projection | undefined;
  #snapshot: Snapshot | undefined;
  #quietRevision = 0;

  constructor(rounds: Pick<Rounds, "snapshot">, now: () => number = wallClockMs) {
    this.#rounds = rounds;
    this.#now = now;
  }

  /** The projection of the last batch; undefined before the first batch. */
  get projection(): Projection | undefined {
    return this.#projection;
  }

  /** Newest revision that needed no batch, because it did not change the view; 0 if there is none. */
  get quietRevision(): number {
    return this.#quietRevision;
  }

  /** The revision that the subscriber has once the last batch has been sent; 0 before the first batch. */
  get revision(): number {
    return this.#snapshot?.revision ?? 0;
  }

  /**
   * Returns the batch (possibly empty) that leads to the target snapshot, which then counts as sent. `begin` computes
   * the batch if the subscriber does not have the view yet.
   */
  advance(projection: Projection, begin: (snapshot: Snapshot) => Changes = projection.whole): Batch {
    const { snapshot } = this.#rounds;
    const before = projection === this.#projection ? this.#snapshot : undefined;
    const changes = before === undefined ? begin(snapshot) : projection.between(before, snapshot);
    this.#projection = projection;
    this.#snapshot = snapshot;
    if (before !== undefined && changes.isEmpty) this.#quietRevision = snapshot.revision;
    const computedAtMs = snapshot.traces.length === 0 ? 0 : this.#now();
    return { changes, snapshot, before, computedAtMs };
  }
}

/** The changes that one subscriber is sent together. */
export interface Batch {
  readonly changes: Changes;
  readonly snapshot: Snapshot;
  /** The previous snapshot of the subscriber; undefined if it did not have the view before. */
  readonly before: Snapshot | undefined;
  /** Time at which the changes were computed, in fractional milliseconds since 1970; 0 while no revision is traced. */
  readonly computedAtMs: number;
}
