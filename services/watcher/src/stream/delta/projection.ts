import type { BucketDigests } from "@kpng/model/wire/item-digest.ts";
import type { Frame } from "../../items/frames.ts";
import type { Item, Order } from "../../items/item.ts";
import type { Snapshot } from "../../store/snapshot.ts";

/**
 * How a stream turns snapshots into operations: into a whole view, or into the changes from one state to another.
 *
 * `nodeProjection` implements it for a node, `globalProjection` for a relay. Separate from both: `Subscription` and
 * `WatchStream` know only this interface, so they serve both.
 */
export interface Projection {
  /** The whole view of a snapshot, as puts. */
  whole(snapshot: Snapshot): Changes;
  /** The changes from one snapshot to another. */
  between(before: Snapshot, snapshot: Snapshot): Changes;
  /**
   * The changes that lead from a held view, known by its digests, to the view of a snapshot. Undefined for a view
   * without digests.
   */
  resume?(snapshot: Snapshot, held: BucketDigests): Changes;
  /** All items of a snapshot, in no particular order. */
  items(snapshot: Snapshot): Iterable<Item>;
  /**
   * The exclusive or of the digests of all items of a snapshot; see EmptyOp.Digest. Computed from the snapshot, not
   * from the operations that were sent. Undefined for a view without digests.
   *
   * *Cost:* the items that changed since the last call.
   */
  digest?(snapshot: Snapshot): bigint;
  readonly order: Order;
}

/** The operations of a batch, without its sync marker. Subscribers with equal operations share the frames. */
export interface Changes {
  readonly isEmpty: boolean;
  /** The only element of `frames`, if there is one that many subscribers share. */
  readonly only?: Frame | undefined;
  /**
   * Encoded while they are read, so that no subscriber needs memory for a whole view. Contains {@link pause} where
   * other work should run first.
   */
  frames(): Iterable<Frame>;
}

/** An empty frame, after a step that has encoded nothing to write yet. */
export const pause: Frame = Buffer.alloc(0);

/** The changes between two equal views. */
export const noChanges: Changes = { isEmpty: true, frames: () => [] };
