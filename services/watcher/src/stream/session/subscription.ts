import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { diffInSteps } from "../delta/diff-items.ts";
import type { Changes, Projection } from "../delta/projection.ts";

/**
 * The view that one subscriber was last sent, and the source of its next batch. Each `Subscriber` has one, and
 * `WatchStream` calls `advance` for each batch. What the client acknowledges is in `Subscriber`.
 *
 * *Bound:* a reference to the snapshot that was sent last. Snapshots share equal parts, so a subscriber that lags keeps
 * only replaced objects in memory, which all such subscribers share. Changes are not queued: the next batch is the
 * difference between the snapshot that was sent and the current one.
 *
 * Separate from `Subscriber`, because only this class compares snapshots.
 */
export class Subscription {
  readonly #state: { readonly snapshot: Snapshot };
  #projection: Projection | undefined;
  #snapshot: Snapshot | undefined;
  #quietRevision = 0;

  /** `state` holds the snapshot to which all subscribers now advance; see `Rounds`. */
  constructor(state: { readonly snapshot: Snapshot }) {
    this.#state = state;
  }

  /** The projection of the last batch; undefined before the first batch. */
  get projection(): Projection | undefined {
    return this.#projection;
  }

  /** Newest revision that did not change the view after the batches so far; 0 for none. */
  get quietRevision(): number {
    return this.#quietRevision;
  }

  /** The revision that the subscriber has once the last batch is sent; 0 before the first batch. */
  get revision(): number {
    return this.#snapshot?.revision ?? 0;
  }

  /**
   * Returns the batch that leads from the snapshot that was sent to the target snapshot, which then counts as sent. The
   * batch may be empty. `begin` computes the changes of the first batch.
   */
  advance(projection: Projection, begin: (snapshot: Snapshot) => Changes = projection.whole): Batch {
    const { snapshot } = this.#state;
    const changes = this.#changesTo(projection, snapshot, begin);
    const isUpdate = projection === this.#projection;
    const before = isUpdate ? this.#snapshot : undefined;
    this.#projection = projection;
    this.#snapshot = snapshot;
    if (isUpdate && changes.isEmpty) this.#quietRevision = snapshot.revision;
    const computedAtMs = snapshot.traces.length === 0 ? 0 : wallClockMs();
    return { changes, snapshot, before, isUpdate, computedAtMs };
  }

  #changesTo(projection: Projection, snapshot: Snapshot, begin: (snapshot: Snapshot) => Changes): Changes {
    if (this.#projection === undefined || this.#snapshot === undefined) return begin(snapshot);
    if (this.#projection === projection) return projection.between(this.#snapshot, snapshot);
    return diffInSteps(this.#projection.items(this.#snapshot), projection.items(snapshot), projection.order);
  }
}

/** The answer to one request of a subscriber. */
export interface Batch {
  readonly changes: Changes;
  /** True for a change of the view that the subscriber has, false for a view that it did not have. */
  readonly isUpdate: boolean;
  readonly snapshot: Snapshot;
  /** The snapshot that the subscriber had before; undefined for a view that it did not have. */
  readonly before: Snapshot | undefined;
  /**
   * When the changes were computed, in milliseconds since 1970, with fractions; 0 while no revision is traced. They may
   * be encoded later.
   */
  readonly computedAtMs: number;
}
