import { constants, zstdCompressSync } from "node:zlib";
import { writeVarint } from "@kpng/model/wire/varint.ts";
import { batchFrame, type Frame, messageIn } from "../../items/frames.ts";

/**
 * Most bytes of operations that are packed into one, as far as one operation is no longer than that: larger ones save
 * little more, and take the thread for longer.
 */
const maxPackedBytes = 512 * 1024;

/** Where half a millisecond for 100 KB ends and diminishing returns begin. */
const options = { params: { [constants.ZSTD_c_compressionLevel]: 3 } };

/** Packs the operations in these frames, each with one of them, into few: see OpItem.Batch. *Cost:* about 5 ms for 1 MB. */
export function packFrames(frames: readonly Frame[]): readonly Frame[] {
  const packed: Frame[] = [];
  let items: Frame[] = [];
  let length = 0;
  const pack = (): void => {
    if (items.length === 0) return;
    const bytes = itemsMessage(items);
    packed.push(batchFrame(zstdCompressSync(bytes, options), bytes.length));
    items = [];
    length = 0;
  };
  for (const frame of frames) {
    if (length + frame.length > maxPackedBytes) pack();
    items.push(frame);
    length += frame.length;
  }
  pack();
  return packed;
}

/** An OpItems message. */
function itemsMessage(frames: readonly Frame[]): Uint8Array {
  // A tag and a length of five bytes at most take the place of a header of five bytes and one.
  const bytes = Buffer.allocUnsafeSlow(frames.reduce((sum, frame) => sum + frame.length + 1, 0));
  let end = 0;
  for (const frame of frames) {
    const message = messageIn(frame);
    bytes[end] = 0x0a;
    end = writeVarint(bytes, end + 1, message.length);
    bytes.set(message, end);
    end += message.length;
  }
  return bytes.subarray(0, end);
}
