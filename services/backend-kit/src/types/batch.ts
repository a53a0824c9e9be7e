import type { ViewChange } from "@kpng/model/node-view.ts";
import type { Arrival } from "./arrival.ts";

/**
 * The changes up to one sync marker of the stream, applied together. `watchBatches` yields batches, and `ViewState`
 * applies them to the view of the node. Separate, because the folders of both use it. A batch is not yet compared with
 * the view; a `ViewUpdate` is the result of that.
 */
export interface Batch {
  /** True if `changes` is the whole view and replaces everything received before. */
  readonly isReset: boolean;
  /** True for the first batch of a stream that continues from the view of an earlier stream. */
  readonly isResumed?: boolean | undefined;
  /**
   * True if this whole view does not have the digest that the watcher sent. Nothing can have been lost before a whole
   * view, so the digest is wrong, and `watchBatches` checks no further digest of the stream.
   */
  readonly isDigestWrong?: boolean | undefined;
  /** True if the state is older than the one before, and no watcher offered a newer one for some time. */
  readonly isOlder?: boolean | undefined;
  readonly changes: readonly ViewChange[];
  /** Revision of the watcher's store; 0 from a Go watcher. */
  readonly revision: bigint;
  /** Run of the watcher that `revision` belongs to; "" from a Go watcher. */
  readonly instance: string;
  /**
   * To be called when the batch was applied: from then on, older states are refused. Undefined if the batch was not
   * received from a watcher.
   */
  readonly applied?: (() => void) | undefined;
  /** Undefined if the batch was not received from a watcher. */
  readonly arrival?: Arrival | undefined;
}
