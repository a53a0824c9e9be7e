import { constants, zstdCompressSync } from "node:zlib";
import { OpItemsSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { MessageWriter, tagsOf } from "@kpng/model/wire/protobuf.ts";
import { batchFrame, deleteFrame, type Frame, messageIn } from "../../items/frames.ts";
import { type Item, nodeViewOrder } from "../../items/item.ts";

/** Returns the operation that deletes an item of a node view. */
export function deleteFrameOf({ section, path }: Pick<Item, "section" | "path">): Frame {
  return deleteFrame(nodeViewOrder.sections[section] ?? 0, path);
}

/**
 * Compresses operations into a few batches; see OpItem.Batch. Each frame holds one operation. Used for operations that
 * many subscribers share. *Cost:* about 5 ms for 1 MB.
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
 * Maximum size of the operations in one batch before compression, in bytes; a single larger operation gets its own
 * batch. Larger batches would save little more, and would block the thread for longer.
 */
const maxBatchBytes = 512 * 1024;

/** Highest compression level that takes less than a millisecond for 100 KB. */
const options = { params: { [constants.ZSTD_c_compressionLevel]: 3 } };

const tags = tagsOf(OpItemsSchema);

const writer = new MessageWriter();

function packed(frames: readonly Frame[]): Frame {
  writer.begin();
  for (const frame of frames) writer.message(tags.Items, messageIn(frame));
  const bytes = writer.finish();
  return batchFrame(zstdCompressSync(bytes, options), bytes.length);
}
