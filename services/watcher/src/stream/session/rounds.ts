import { getOrMake } from "@kpng/model/get-or-make.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import type { Store } from "../../store/store.ts";
import { PreparedSnapshots } from "./prepared-snapshots.ts";
import { scheduler } from "./scheduler.ts";

/**
 * Advances all subscribers of a store from one snapshot to the next in rounds. While some of them wait for their turn,
 * the target snapshot stays the same; later changes belong to the next round.
 *
 * If each subscriber advanced to the newest snapshot at its turn, soon no two subscribers would advance between the
 * same two snapshots, and each difference would be computed, encoded and compressed for one subscriber.
 *
 * A change that arrives while no round is in progress starts one immediately. Subscribers that begin or resume have
 * their own share of the thread: between two rounds, and during one that takes longer than 100 ms; see Scheduler.
 *
 * *Bound:* one entry for each waiting subscriber.
 *
 * Each `WatchStream` asks it for the target snapshot, and waits for the next round with `callNext`. Separate from
 * `WatchStream`, because all streams of a store share it; `PreparedSnapshots` decides which snapshots can be a target.
 */
export class Rounds {
  readonly #store: Store;
  readonly #prepared: PreparedSnapshots;
  readonly #waiting = new Wakeup();
  readonly #onStored = (): void => this.#begin();
  readonly #onDone = (): void => this.#end();
  readonly #onNext = (): void => {
    this.#isInProgress = false;
    if (this.#waiting.waitingCount > 0) this.#begin();
  };
  #snapshot: Snapshot;
  /** The snapshot of the last round. */
  #begun: Snapshot | undefined;
  #isInProgress = false;

  constructor(store: Store) {
    this.#store = store;
    this.#snapshot = store.snapshot;
    this.#prepared = new PreparedSnapshots(store, this.#onStored);
  }

  /** Prepares snapshots for views of nodes; see PreparedSnapshots. Called for each stream of a node. */
  forViews(): void {
    this.#prepared.forViews();
  }

  /** The target snapshot: the one of the round in progress, otherwise the newest that is prepared. */
  get snapshot(): Snapshot {
    if (!this.#isInProgress) this.#snapshot = this.#prepared.newest();
    return this.#snapshot;
  }

  /** Calls back once, when the next round begins, unless cancelled. */
  callNext(callback: () => void): void {
    this.#waiting.call(callback);
    if (!this.#isInProgress) this.#store.callNext(this.#onStored);
  }

  cancelNext(callback: () => void): void {
    this.#waiting.cancel(callback);
    if (this.#waiting.waitingCount === 0) this.#store.cancelNext(this.#onStored);
  }

  #begin(): void {
    if (this.#isInProgress) return;
    const snapshot = this.#prepared.newest();
    // Otherwise, the round begins when a newer snapshot is prepared. It does not wait for the newest one of the store:
    // while that keeps changing, no round would ever begin.
    if (snapshot === this.#begun) return;
    this.#begun = snapshot;
    this.#snapshot = snapshot;
    this.#isInProgress = true;
    this.#waiting.wake();
    scheduler.schedule("round", this.#onDone);
  }

  /** All subscribers of the round have had their turn. */
  #end(): void {
    if (this.#store.snapshot !== this.#snapshot) {
      // Requests that have arrived are read first: their subscribers take part in the next round from its start.
      setImmediate(() => setImmediate(this.#onNext));
      return;
    }
    this.#isInProgress = false;
    if (this.#waiting.waitingCount > 0) this.#store.callNext(this.#onStored);
  }
}

const roundsByStore = new WeakMap<Store, Rounds>();

/** Returns the rounds of a store. */
export function roundsOf(store: Store): Rounds {
  return getOrMake(roundsByStore, store, () => new Rounds(store));
}
