import { changedServices, deriveAll } from "../../store/derived.ts";
import { emptySnapshot, type Snapshot } from "../../store/snapshot.ts";
import { snapshotSteps } from "../../store/snapshot-steps.ts";
import type { Store } from "../../store/store.ts";
import { scheduler } from "./scheduler.ts";

/** Changes of more Services are prepared in steps. Fewer take some milliseconds. */
const maxServices = 256;

/**
 * The newest snapshot of a store from which views can be computed in short pieces: everything that views derive from a
 * snapshot was derived, step by step, before the first subscriber asks. `Rounds` advances subscribers to these
 * snapshots.
 *
 * After a list that changes thousands of Services, the snapshot before it remains the newest one for about a second,
 * and the event loop turns between the steps. Changes meanwhile wait for the end of the steps.
 *
 * *Bound:* the values of one further snapshot.
 *
 * Separate from `Rounds`, which decides when all subscribers advance.
 */
export class PreparedSnapshots {
  readonly #store: Store;
  readonly #onPrepared: () => void;
  #snapshot: Snapshot;
  #isPreparing = false;
  #hasViews = false;

  /** `onPrepared` is called when steps are completed. */
  constructor(store: Store, onPrepared: () => void) {
    this.#store = store;
    this.#snapshot = store.snapshot;
    this.#onPrepared = onPrepared;
  }

  /** From now on, prepares snapshots for views of nodes. Streams for relays alone need no preparation. */
  forViews(): void {
    if (this.#hasViews) return;
    this.#hasViews = true;
    this.#snapshot = emptySnapshot;
  }

  /** Returns the newest prepared snapshot, and starts to prepare the newest one of the store. */
  newest(): Snapshot {
    const { snapshot } = this.#store;
    if (this.#isPreparing || snapshot === this.#snapshot) return this.#snapshot;
    if (!this.#hasViews) this.#snapshot = snapshot;
    else this.#advance(snapshot);
    return this.#snapshot;
  }

  #advance(target: Snapshot): void {
    const keys = changedServices(this.#snapshot, target);
    if (keys.length <= maxServices) {
      this.#snapshot = target;
      return;
    }
    this.#isPreparing = true;
    this.#prepare(derivedInSteps(snapshotSteps(this.#snapshot, target))[Symbol.iterator](), target);
  }

  #prepare(pieces: Iterator<undefined>, target: Snapshot): void {
    scheduler.schedule("update", () => {
      if (pieces.next().done !== true) {
        this.#prepare(pieces, target);
        return;
      }
      this.#isPreparing = false;
      this.#snapshot = target;
      this.#onPrepared();
    });
  }
}

function* derivedInSteps(steps: Iterable<Snapshot>): Iterable<undefined> {
  for (const step of steps) yield* deriveAll(step);
}
