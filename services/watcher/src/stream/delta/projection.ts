import type { BucketDigests } from "@kpng/model/wire/digest.ts";
import type { Frame } from "../../items/frames.ts";
import type { Snapshot } from "../../store/snapshot.ts";

/** How a stream turns snapshots into operations: `nodeProjection` for a node, `globalProjection` for a relay. */
export interface Projection {
  /** The whole view of a snapshot, as puts. */
  whole(snapshot: Snapshot): Changes;
  /** The changes from one snapshot to another; Reset and the whole view if they have little in common. */
  between(before: Snapshot, snapshot: Snapshot): Changes;
  /** The changes from the view with these digests to that of a snapshot. Undefined for views without digests. */
  resume?(snapshot: Snapshot, clientDigests: BucketDigests): Changes;
  /**
   * The digest of the whole view (EmptyOp.Digest), computed from the snapshot and not from the operations that were
   * sent. Undefined for views without digests. *Cost:* the items that changed since the last call.
   */
  digest?(snapshot: Snapshot): bigint;
}

/** The operations of a batch, without its sync marker. Subscribers with equal operations share the frames. */
export interface Changes {
  readonly isEmpty: boolean;
  /** The only element of `frames`, if there is one that is already encoded. */
  readonly only?: Frame | undefined;
  /** Encoded while they are read, which saves the memory of a whole view. {@link pause} lets other work run first. */
  frames(): Iterable<Frame>;
}

/** Changes that are encoded in one frame. */
export function changesOf(frame: Frame): Changes {
  return frame.length === 0 ? noChanges : { isEmpty: false, only: frame, frames: () => [frame] };
}

/** The changes between two equal views. */
export const noChanges: Changes = { isEmpty: true, frames: () => [] };

/** An empty frame, after a slice of work that has encoded nothing to write yet. */
export const pause: Frame = Buffer.alloc(0);

/** Maximum time between two pauses, in milliseconds. */
const sliceMs = 5;

/**
 * Does work for each item, and yields {@link pause} after every 5 ms, so that other streams and health probes have their
 * turn while all endpoints of a large chunk are encoded.
 */
export function* inSlices<T>(
  items: Iterable<T>,
  work: (item: T) => void,
  now = () => performance.now(),
): Generator<Frame, void> {
  let endMs = now() + sliceMs;
  for (const item of items) {
    work(item);
    if (now() < endMs) continue;
    yield pause;
    endMs = now() + sliceMs;
  }
}

/** Frames are joined up to this size, in bytes: a write costs more than a copy of this length. */
const joinedBytes = 16 * 1024;

/** Joins small frames, so that a reader that stops keeps a copy of few of them. Passes {@link pause} on. */
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
