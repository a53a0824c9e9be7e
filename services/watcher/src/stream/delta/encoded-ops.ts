import { constants, zstdCompressSync } from "node:zlib";
import { compareText, lowerBound } from "@kpng/model/collections.ts";
import { OpItemsSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { MessageWriter, tagsOf } from "@kpng/model/wire/protobuf.ts";
import { batchFrame, deleteFrame, type Frame, messageIn } from "../../items/frames.ts";
import { type Item, nodeViewOrder } from "../../items/item.ts";

/** The operation that puts or deletes the item at a path. */
export interface Op {
  readonly path: string;
  readonly frame: Frame;
}

/** Returns the operation that deletes an item of a node view. */
export function deleteOp({ section, path }: Pick<Item, "section" | "path">): Op {
  return { path, frame: deleteFrame(nodeViewOrder.sections[section] ?? 0, path) };
}

/**
 * The operations of one phase (puts or deletes of one kind of items) in their order on the wire, in one buffer that all
 * subscribers of a class share.
 */
export interface EncodedOps {
  /** In order of their paths; each path occurs once. */
  readonly ops: readonly Op[];
  readonly isDescending: boolean;
  readonly bytes: Frame;
  /** The offset in `bytes` at which each operation ends. */
  readonly ends: Uint32Array;
}

/** Encodes operations, given in any order. */
export function encodeOps(ops: readonly Op[], isDescending = false): EncodedOps {
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

/**
 * Returns the bytes in slices, with some operations replaced by those of one subscriber, or left out where `edits` has
 * undefined at their path. O(edits × log operations).
 */
export function spliceOps(
  { ops, isDescending, bytes, ends }: EncodedOps,
  edits: ReadonlyMap<string, Frame | undefined>,
): Frame[] {
  const sign = isDescending ? -1 : 1;
  const slices: Frame[] = [];
  let from = 0;
  const copyTo = (index: number): void => {
    const [start, end] = [from === 0 ? 0 : (ends[from - 1] ?? 0), index === 0 ? 0 : (ends[index - 1] ?? 0)];
    if (end > start) slices.push(bytes.subarray(start, end));
  };
  const sorted = edits.size < 2 ? edits : [...edits].sort(([a], [b]) => sign * compareText(a, b));
  for (const [path, frame] of sorted) {
    const index = lowerBound(ops.length, (at) => sign * compareText(ops[at]?.path ?? "", path) < 0);
    copyTo(index);
    from = ops[index]?.path === path ? index + 1 : index;
    if (frame !== undefined) slices.push(frame);
  }
  copyTo(ops.length);
  return slices;
}

/**
 * Compresses operations into few batches; see OpItem.Batch. Each frame holds one operation. For whatever many
 * subscribers share. *Cost:* about 5 ms for 1 MB.
 */
export function packFrames(frames: readonly Frame[]): readonly Frame[] {
  const batches: Frame[] = [];
  let items: Frame[] = [];
  let length = 0;
  for (const frame of frames) {
    if (items.length > 0 && length + frame.length > maxBatchBytes) {
      batches.push(packed(items));
      [items, length] = [[], 0];
    }
    items.push(frame);
    length += frame.length;
  }
  if (items.length > 0) batches.push(packed(items));
  return batches;
}

/**
 * Maximum size of the operations in one batch before compression, in bytes; a single larger operation is a batch alone.
 * Larger batches save little more, and block the thread for longer.
 */
const maxBatchBytes = 512 * 1024;

/** The highest level that takes less than a millisecond for 100 KB. */
const options = { params: { [constants.ZSTD_c_compressionLevel]: 3 } };

const tags = tagsOf(OpItemsSchema);

const writer = new MessageWriter();

function packed(frames: readonly Frame[]): Frame {
  writer.begin();
  for (const frame of frames) writer.message(tags.Items, messageIn(frame));
  const bytes = writer.finish();
  return batchFrame(zstdCompressSync(bytes, options), bytes.length);
}
