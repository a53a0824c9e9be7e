import { lowerBound } from "@kpng/model/binary-search.ts";
import { compareText } from "@kpng/model/text-order.ts";
import type { Frame } from "../../items/frames.ts";

/**
 * The operations of one phase (puts or deletes of one kind of items) in their order on the wire, in one buffer that all
 * subscribers of a class share.
 *
 * `encodeOps` makes it, for the changes of a class (`snapshotDelta`) and for whole views (`chunkOps`); `spliceOps` puts
 * the operations of one node in their place. Separate from both callers, because both need it.
 */
export interface EncodedOps {
  /** In order of their paths; each path occurs once. */
  readonly ops: readonly PathOp[];
  readonly isDescending: boolean;
  readonly bytes: Frame;
  /** The offset in `bytes` at which each operation ends. */
  readonly ends: Uint32Array;
}

/** The operation that puts or deletes the item at a path. */
export interface PathOp {
  readonly path: string;
  readonly frame: Frame;
}

/** Encodes operations, given in any order. */
export function encodeOps(ops: readonly PathOp[], isDescending = false): EncodedOps {
  const sorted = ops.toSorted(
    isDescending ? (a, b) => compareText(b.path, a.path) : (a, b) => compareText(a.path, b.path),
  );
  const ends = new Uint32Array(sorted.length);
  let length = 0;
  for (const [index, { frame }] of sorted.entries()) {
    length += frame.length;
    ends[index] = length;
  }
  const frames = sorted.map(({ frame }) => frame);
  return { ops: sorted, isDescending, bytes: Buffer.concat(frames, length), ends };
}

/** The operations of one subscriber that differ from the shared ones, by path; undefined for no operation. */
export type OpEdits = ReadonlyMap<string, Frame | undefined>;

/**
 * Returns the bytes in slices, with the edited operations replaced. O(edits × log operations). `nodeDelta` and
 * `wholeView` call it for a node whose items differ from those of its class.
 */
export function spliceOps({ ops, isDescending, bytes, ends }: EncodedOps, edits: OpEdits): Frame[] {
  const sign = isDescending ? -1 : 1;
  const slices: Frame[] = [];
  let from = 0;
  const copyTo = (index: number): void => {
    const [start, end] = [from === 0 ? 0 : (ends[from - 1] ?? 0), index === 0 ? 0 : (ends[index - 1] ?? 0)];
    if (end > start) slices.push(bytes.subarray(start, end));
  };
  const sorted = edits.size < 2 ? edits : [...edits].sort(([a], [b]) => sign * compareText(a, b));
  for (const [path, frame] of sorted) {
    const index = indexFrom(ops, path, sign);
    copyTo(index);
    from = ops[index]?.path === path ? index + 1 : index;
    if (frame !== undefined) slices.push(frame);
  }
  copyTo(ops.length);
  return slices;
}

/** Returns the index of the first operation that is not before `path`. */
function indexFrom(ops: readonly PathOp[], path: string, sign: number): number {
  return lowerBound(ops.length, (index) => sign * compareText(ops[index]?.path ?? "", path) < 0);
}
