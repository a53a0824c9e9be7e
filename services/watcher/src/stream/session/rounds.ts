import { Wakeup } from "@kpng/process/wait.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import type { Store } from "../../store/store.ts";
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
