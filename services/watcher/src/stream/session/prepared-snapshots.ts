import type { ServiceKey } from "@kpng/model/service.ts";
import { changedServices, deriveAll } from "../../store/derived.ts";
import { emptySnapshot, type Snapshot, slicesOf } from "../../store/snapshot.ts";
import { snapshotSteps } from "../../store/snapshot-steps.ts";
import type { Store } from "../../store/store.ts";
import { scheduler } from "./scheduler.ts";

/**
 * Changes of more Services, or of Services with more endpoints, are prepared in steps. Fewer take some milliseconds.
 */
const maxServices = 256;
const maxEndpoints = 1_024;

/**
 * The newest snapshot of a store from which views can be computed in short pieces: everything that views derive from a
 * snapshot was derived, step by step, before the first subscriber asks. `Rounds` advances subscribers to these
 * snapshots.
 *
 * After a list that changes thousands of Services, the snapshot before it remains the newest one for about a second,
 * and the event loop turns between the steps. Changes meanwhile wait for the end of the steps. A change to a Service
 * with thousands of endpoints has one step for each derived value.
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

  /** True while a newer snapshot is being prepared. */
  get isPreparing(): boolean {
    return this.#isPreparing;
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
    const isLong = keys.length > maxServices;
    if (!isLong && countEndpoints(target, keys) <= maxEndpoints) {
      this.#snapshot = target;
      return;
    }
    const steps = isLong ? snapshotSteps(this.#snapshot, target) : [target];
    this.#isPreparing = true;
    this.#prepare(derivedInSteps(steps)[Symbol.iterator](), target);
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

function countEndpoints(snapshot: Snapshot, keys: readonly string[]): number {
  const slices = keys.flatMap((key) => slicesOf(snapshot, key as ServiceKey));
  return slices.reduce((sum, { endpoints }) => sum + endpoints.length, 0);
}
