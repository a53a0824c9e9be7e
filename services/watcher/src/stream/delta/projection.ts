import type { BucketDigests } from "@kpng/model/wire/digest.ts";
import type { Frame } from "../../items/frames.ts";
import type { Snapshot } from "../../store/snapshot.ts";

/** How a stream turns snapshots into operations: `nodeProjection` for a node, `globalProjection` for a relay. */
export interface Projection {
  /** The whole view of a snapshot, as puts. */
  whole(snapshot: Snapshot): Changes;
  /** The changes from one snapshot to another; Reset and the whole view if the node's class differs between them. */
  between(before: Snapshot, snapshot: Snapshot): Changes;
  /** The changes from the view with these digests to the view of a snapshot. Undefined for views without digests. */
  resume?(snapshot: Snapshot, clientDigests: BucketDigests): Changes;
  /**
   * The digest of the whole view (EmptyOp.Digest), computed from the snapshot, not from the operations that were sent.
   * Undefined for views without digests. *Cost:* proportional to the items that changed since the last call.
   */
  digest?(snapshot: Snapshot): bigint;
}

/**
 * The operations of a batch, without its sync marker. They are encoded while they are read, once, so that a whole view is
 * never in memory at one time. At each {@link pause}, other work may run first. Subscribers with equal operations share
 * the frames.
 */
export type Changes = Iterable<Frame>;

/** The changes between two equal views. It is recognized by identity. */
export const noChanges: readonly Frame[] = [];

/** Yielded by work that has not yet produced anything to write. It is recognized by identity, not by its length. */
export const pause: Frame = Buffer.alloc(0);

/** Maximum time between two pauses, in milliseconds. */
const pauseAfterMs = 5;

/**
 * Does all steps of a computation, and yields {@link pause} after every 5 ms, so that other streams and health probes get
 * a turn while the endpoints of a large chunk are encoded.
 */
export function* withPauses(steps: Iterable<unknown>): Generator<Frame, void> {
  let endMs = performance.now() + pauseAfterMs;
  for (const _ of steps) {
    if (performance.now() < endMs) continue;
    yield pause;
    endMs = performance.now() + pauseAfterMs;
  }
}

/** Size up to which frames are joined, in bytes. A write costs more than a copy of this length. */
const joinedBytes = 16 * 1024;

/**
 * Joins small frames, but only up to a limit, so that a reader that stops retains few copies. Passes {@link pause} on.
 */
export function* joinFrames(frames: Iterable<Frame>): Iterable<Frame> {
  let joined: Frame[] = [];
  let length = 0;
  for (const frame of frames) {
    if (frame === pause) {
      yield pause;
      continue;
    }
    joined.push(frame);
    length += frame.length;
    if (length < joinedBytes) continue;
    yield Buffer.concat(joined, length);
    [joined, length] = [[], 0];
  }
  if (length > 0) yield Buffer.concat(joined, length);
}
