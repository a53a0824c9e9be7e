import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { diffItems } from "../delta/diff-items.ts";
import type { Changes, Projection } from "../delta/projection.ts";
import type { Rank } from "./turns.ts";

/** What a subscriber gets in answer to one request. */
export interface Batch {
  readonly changes: Changes;
  /** "begin" for a view that the subscriber did not have. */
  readonly rank: Rank;
  readonly snapshot: Snapshot;
  /** What the subscriber had before; undefined for a view that it did not have. */
  readonly before: Snapshot | undefined;
  /**
   * When it was known what to tell, in milliseconds since 1970, with fractions; to encode it may come after that. 0 while
   * no revision is traced.
   */
  readonly computedAtMs: number;
}

/**
 * What one subscriber has been sent.
 *
 * Bound: a reference to the snapshot that it was sent last. Snapshots share what stayed the same, so a subscriber that
 * lags behind pins what has changed since, once for all that lag; changes are not queued at all, because the next batch
 * is the difference between what was sent and what is.
 */
export class Subscription {
  readonly #state: { readonly snapshot: Snapshot };
  #projection: Projection | undefined;
  #snapshot: Snapshot | undefined;
  #quietRevision = 0;

  /** `state` gives the snapshot that is to be had now; see Rounds. */
  constructor(state: { readonly snapshot: Snapshot }) {
    this.#state = state;
  }

  /** What was sent last is a view of this; undefined before the first batch. */
  get projection(): Projection | undefined {
    return this.#projection;
  }

  /** Newest revision that had nothing to tell beyond the batches given before; 0 for none. */
  get quietRevision(): number {
    return this.#quietRevision;
  }

  /** Newest revision of which nothing remains to be told, once the last batch is sent; 0 before the first. */
  get revision(): number {
    return this.#snapshot?.revision ?? 0;
  }

  /**
   * Returns what leads from what was sent to the state that is to be had now, which then counts as sent; there may be nothing that this
   * subscriber can see. `begin` gives the first batch its changes.
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
    return { changes, snapshot, before, rank: isUpdate ? "update" : "begin", computedAtMs };
  }

  #changesTo(projection: Projection, snapshot: Snapshot, begin: (snapshot: Snapshot) => Changes): Changes {
    if (this.#projection === undefined || this.#snapshot === undefined) return begin(snapshot);
    if (this.#projection === projection) return projection.between(this.#snapshot, snapshot);
    return diffItems(this.#projection.items(this.#snapshot), projection.items(snapshot), projection.order);
  }
}
