import type { Frame } from "../../items/frames.ts";
import type { Item, Order } from "../../items/item.ts";
import type { Snapshot } from "../../store/snapshot.ts";

/** Frames of a batch without its marker, in their order; shared between subscribers wherever they are the same. */
export interface Changes {
  readonly isEmpty: boolean;
  /** The one frame that it is, if it is one that many share. */
  readonly only?: Frame | undefined;
  /** Made while they are read: a whole view is never in memory for a single subscriber. */
  frames(): Iterable<Frame>;
}

export const noChanges: Changes = { isEmpty: true, frames: () => [] };

/** What a stream shows of a snapshot, and in which order its changes are told. */
export interface Projection {
  /** All that a snapshot shows, as puts. */
  whole(snapshot: Snapshot): Changes;
  /** What leads from one snapshot to another. */
  between(before: Snapshot, snapshot: Snapshot): Changes;
  /** All items of a snapshot, in no order. */
  items(snapshot: Snapshot): Iterable<Item>;
  /**
   * The exclusive or of the digests of all items of a snapshot; see EmptyOp.Digest. Made from the snapshot, not from
   * what was told. Undefined where nobody asks for it. *Cost:* in proportion to what changed since the last snapshot
   * that it was asked for.
   */
  digest?(snapshot: Snapshot): bigint;
  readonly order: Order;
}
