import type { NodeView, ViewChange } from "@kpng/model/node-view.ts";
import type { Arrival } from "./arrival.ts";

/**
 * A view after a batch, and its difference from the previous view. `followView` yields updates, and the sync loop
 * merges them and passes them to the backend. Separate, because the folders of both use it, and observers too. Unlike
 * a `Batch`, it has the whole view. A `SyncUpdate` adds how much of it a sync must examine.
 */
export interface ViewUpdate {
  /** Immutable; Services that did not change are the same objects as in the view before. */
  readonly view: NodeView;
  /** Shortest list of changes from the previous view; empty if a new stream brought the same view. */
  readonly changes: readonly ViewChange[];
  /** True for the first view: `changes` puts all of it. */
  readonly isFirst: boolean;
  /** Revision of the watcher's store; 0 from a Go watcher. */
  readonly revision: bigint;
  /** Run of the watcher that `revision` belongs to; "" from a Go watcher. */
  readonly instance: string;
  /**
   * True for the saved view, used while no watcher answers. Rules that are already installed are at least as new as
   * this view.
   */
  readonly isFromDisk?: boolean | undefined;
  /** Undefined if nothing was received: a view from disk, a full sync of the current view. */
  readonly arrival?: Arrival | undefined;
}
