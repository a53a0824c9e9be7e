import { constants, zstdCompressSync } from "node:zlib";
import { OpItemsSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { tagsOf } from "@kpng/model/wire/field-tags.ts";
import { MessageWriter } from "@kpng/model/wire/message-writer.ts";
import { batchFrame, type Frame, messageIn } from "../../items/frames.ts";

/**
 * Compresses operations into few batches; see OpItem.Batch. Each frame holds one operation.
 *
 * *Cost:* about 5 ms for 1 MB.
 *
 * Called for everything that many subscribers share: the changes of a class (`snapshotDelta`), chunks of whole views
 * (`packedChunk`) and buckets (`Bucket`). Separate from `encodeOps`, because older subscribers do not understand
 * compressed operations.
 */
export function packFrames(frames: readonly Frame[]): readonly Frame[] {
  return [...packInSteps(frames)];
}

/** Same as {@link packFrames}, a batch at a time. For `fillGaps`, which pauses after each. */
export function* packInSteps(frames: readonly Frame[]): Iterable<Frame> {
  let items: Frame[] = [];
  let length = 0;
  for (const frame of frames) {
    if (items.length > 0 && length + frame.length > maxBatchBytes) {
      yield packed(items);
      [items, length] = [[], 0];
    }
    items.push(frame);
    length += frame.length;
  }
  if (items.length > 0) yield packed(items);
}

function packed(frames: readonly Frame[]): Frame {
  const bytes = itemsMessage(frames);
  return batchFrame(zstdCompressSync(bytes, options), bytes.length);
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

/** Returns an OpItems message, valid until the next call. */
function itemsMessage(frames: readonly Frame[]): Uint8Array {
  writer.begin();
  for (const frame of frames) writer.message(tags.Items, messageIn(frame));
  return writer.finish();
}
