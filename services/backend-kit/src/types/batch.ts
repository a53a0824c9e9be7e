import type { ViewChange } from "@kpng/model/node-view.ts";
import type { Arrival } from "./arrival.ts";

/** The changes up to one sync marker, applied together. */
export interface Batch {
  /** True if `changes` is the whole view and replaces everything received before. */
  readonly isReset: boolean;
  /** True for the first batch of a stream that continues from the view of an earlier stream. */
  readonly isResumed?: boolean | undefined;
  /**
   * True if the digest of this whole view is not the digest that the watcher announced. Nothing can have been lost
   * before a whole view, so the watcher's digest is wrong, and the stream is not checked any further.
   */
  readonly isDoubtful?: boolean | undefined;
  readonly changes: readonly ViewChange[];
  /** Revision of the watcher's store; 0 from a Go watcher. */
  readonly revision: bigint;
  /** Run of the watcher that `revision` belongs to; "" from a Go watcher. */
  readonly instance: string;
  /** Undefined if the batch was not received from a watcher. */
  readonly arrival?: Arrival | undefined;
}
