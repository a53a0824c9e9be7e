import type { Snapshot } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import { diffItems, type ItemChange } from "./diff-items.ts";
import type { Item, Projection, Unit, UnitChanges } from "./projection.ts";

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
  readonly #held = new Map<string, Unit>();
  #projection: Projection | undefined;
  #snapshot: Snapshot | undefined;

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
    for (;;) {
      const after = isNew ? 0 : (this.#snapshot?.revision ?? 0);
      const snapshot = await this.#store.next(after, signal);
      if (snapshot === undefined) return undefined;
      const changes = isNew ? this.#changeTo(projection, snapshot) : this.#advance(projection, snapshot);
      this.#projection = projection;
      this.#snapshot = snapshot;
      if (isNew || changes.length > 0) return { changes, snapshot };
    }
  }

  #advance(projection: Projection, snapshot: Snapshot): readonly ItemChange[] {
    return this.#hold(projection, projection.project(snapshot, this.#snapshot));
  }

  #changeTo(projection: Projection, snapshot: Snapshot): readonly ItemChange[] {
    const units = new Map(projection.project(snapshot, undefined));
    for (const key of this.#held.keys()) if (!units.has(key)) units.set(key, undefined);
    return this.#hold(projection, units);
  }

  #hold(projection: Projection, units: UnitChanges): readonly ItemChange[] {
    const sent: Item[] = [];
    const wanted: Item[] = [];
    for (const [key, unit] of units) {
      sent.push(...(this.#held.get(key) ?? []));
      wanted.push(...(unit ?? []));
      if (unit === undefined) this.#held.delete(key);
      else this.#held.set(key, unit);
    }
    return diffItems(sent, wanted, projection.phases);
  }
}
