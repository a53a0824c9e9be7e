import type { Snapshot } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import { diffUnits, type ItemChange } from "./diff-units.ts";
import { noUnits, type Projection, type Units } from "./projection.ts";

/** What a subscriber gets in answer to one request. */
export interface Batch {
  readonly changes: readonly ItemChange[];
  readonly snapshot: Snapshot;
}

/**
 * What one subscriber has been sent, and what it must be sent next.
 *
 * Bound: one whole view, as encoded items, per subscriber; changes are not queued at all, because the next batch is the
 * difference between what was sent and what is.
 */
export class Subscription {
  readonly #store: Store;
  #projection: Projection | undefined;
  #sent: Units = noUnits;
  #revision = 0;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Waits until the subscriber must be told something and returns it, or returns undefined when `signal` aborts.
   *
   * The first batch, and the first after a change of projection, comes as soon as the store is synced, even if nothing
   * differs; later ones wait for a change that this subscriber can see.
   */
  async next(projection: Projection, signal: AbortSignal): Promise<Batch | undefined> {
    const isNew = projection !== this.#projection;
    let after = isNew ? 0 : this.#revision;
    for (;;) {
      const snapshot = await this.#store.next(after, signal);
      if (snapshot === undefined) return undefined;
      const wanted = projection.project(snapshot, this.#sent);
      const changes = diffUnits(this.#sent, wanted, projection.phases);
      after = snapshot.revision;
      this.#sent = wanted;
      this.#revision = snapshot.revision;
      this.#projection = projection;
      if (isNew || changes.length > 0) return { changes, snapshot };
    }
  }
}
