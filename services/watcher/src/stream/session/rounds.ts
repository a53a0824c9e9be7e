import { getOrMake } from "@kpng/model/get-or-make.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import type { Store } from "../../store/store.ts";
import { turns } from "./turns.ts";

/**
 * Leads all subscribers of a store from one snapshot to the next in rounds: while some have not had their turn, all go to
 * the same snapshot, and what changes in the meantime is for the next round.
 *
 * Were each led to what is newest when its turn comes, then of a thousand those that come last would be ahead of those that
 * came first; soon no two would go the same way, and what lies between would be worked out, encoded and compressed for
 * each of them.
 *
 * Between two rounds, who begins or comes back has a slice of its own. A change that comes while nobody is at work is
 * passed on at once. *Bound:* one entry for each that waits.
 */
export class Rounds {
  readonly #store: Store;
  readonly #waiting = new Wakeup();
  readonly #onStored = (): void => this.#begin();
  readonly #onDone = (): void => this.#end();
  readonly #onNext = (): void => {
    this.#isGoing = false;
    if (this.#waiting.waitingCount > 0) this.#begin();
  };
  #snapshot: Snapshot;
  #isGoing = false;

  constructor(store: Store) {
    this.#store = store;
    this.#snapshot = store.snapshot;
  }

  /** What everybody is to have now: that of the round, and the newest between two rounds. */
  get snapshot(): Snapshot {
    if (!this.#isGoing) this.#snapshot = this.#store.snapshot;
    return this.#snapshot;
  }

  /** Calls back once, when the next round begins, unless cancelled. */
  callNext(callback: () => void): void {
    this.#waiting.call(callback);
    if (!this.#isGoing) this.#store.callNext(this.#onStored);
  }

  cancelNext(callback: () => void): void {
    this.#waiting.cancel(callback);
    if (this.#waiting.waitingCount === 0) this.#store.cancelNext(this.#onStored);
  }

  #begin(): void {
    if (this.#isGoing) return;
    this.#snapshot = this.#store.snapshot;
    this.#isGoing = true;
    this.#waiting.wake();
    turns.schedule("round", this.#onDone);
  }

  /** Nobody who was behind waits for a turn any more. */
  #end(): void {
    if (this.#store.snapshot !== this.#snapshot) {
      // In between who begins or comes back has a slice, or would have none as long as something changes all the time.
      setImmediate(() => setImmediate(this.#onNext));
      return;
    }
    this.#isGoing = false;
    if (this.#waiting.waitingCount > 0) this.#store.callNext(this.#onStored);
  }
}

const all = new WeakMap<Store, Rounds>();

/** Those of a store. */
export function roundsOf(store: Store): Rounds {
  return getOrMake(all, store, () => new Rounds(store));
}
