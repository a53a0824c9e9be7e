import { constants, zstdCompressSync } from "node:zlib";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import {
  BatchOpSchema,
  EmptyOpSchema,
  Encoding,
  KeepOpSchema,
  type OpItem,
  OpItemSchema,
  OpItemsSchema,
  RefSchema,
  type Set as SetName,
  ValueSchema,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { MessageWriter, tagsOf } from "@kpng/model/wire/protobuf.ts";

/**
 * One or more messages of a stream as gRPC frames, which all subscribers share.
 *
 * *Shape of one:* a zero byte (not compressed), the length of the message in 4 bytes, big-endian, and the OpItem.
 */
export type Frame = Uint8Array;

/** Length of a frame's header. */
export const frameHeaderBytes = 5;

const opTags = tagsOf(OpItemSchema);
const valueTags = tagsOf(ValueSchema);
const refTags = tagsOf(RefSchema);
const itemsTags = tagsOf(OpItemsSchema);

const writer = new MessageWriter();

/** Returns the frame that puts an item of a node view or, for relays, of the cluster state. */
export function setFrame(set: SetName, path: string, bytes: Uint8Array): Frame {
  writer.begin();
  const value = writer.open(opTags.Set);
  writeRef(valueTags.Ref, set, path);
  writer.bytes(valueTags.Bytes, bytes);
  writer.close(value);
  return frameOf(writer.finish());
}

export function deleteFrame(set: SetName, path: string): Frame {
  writer.begin();
  writeRef(opTags.Delete, set, path);
  return frameOf(writer.finish());
}

function writeRef(tag: number, set: SetName, path: string): void {
  const ref = writer.open(tag);
  writer.number(refTags.Set, set);
  writer.string(refTags.Path, path);
  writer.close(ref);
}

/** First message of a whole view. */
export const resetFrame: Frame = opFrame({ case: "Reset", value: create(EmptyOpSchema) });

/** Returns the first message of a resumed view. */
export function keepFrame(buckets: Uint8Array): Frame {
  return opFrame({ case: "Keep", value: create(KeepOpSchema, { Buckets: buckets }) });
}

/** Returns the sync marker that ends a batch; without fields, it is KPNG's empty marker. */
export function syncFrame(fields: MessageInitShape<typeof EmptyOpSchema> = {}): Frame {
  return opFrame({ case: "Sync", value: create(EmptyOpSchema, fields) });
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
const zstdOptions = { params: { [constants.ZSTD_c_compressionLevel]: 3 } };

function packed(frames: readonly Frame[]): Frame {
  writer.begin();
  for (const frame of frames) writer.message(itemsTags.Items, messageIn(frame));
  const bytes = writer.finish();
  const Items = zstdCompressSync(bytes, zstdOptions);
  const value = create(BatchOpSchema, { Encoding: Encoding.Zstd, Items, Size: bytes.length });
  return opFrame({ case: "Batch", value });
}

export function messageIn(frame: Frame): Uint8Array {
  return frame.subarray(frameHeaderBytes);
}

/**
 * Returns the value in a frame that {@link setFrame} returned, as a view of the frame's memory. The value must not be
 * empty, because `setFrame` leaves out the field of an empty one.
 */
export function valueIn(frame: Frame): Uint8Array {
  const reader = new BinaryReader(messageIn(frame));
  reader.tag();
  // Skip the length of the message Value.
  reader.uint32();
  reader.tag();
  reader.skip(WireType.LengthDelimited);
  reader.tag();
  return reader.bytes();
}

/** Encodes an operation that is rare enough for the library's encoder. */
function opFrame(op: OpItem["Op"]): Frame {
  return frameOf(toBinary(OpItemSchema, create(OpItemSchema, { Op: op })));
}

/**
 * Returns the frame of an encoded OpItem. It is not allocated from Node.js's pool, because a cached frame would keep the
 * memory of its neighbours in the pool.
 */
export function frameOf(message: Uint8Array): Frame {
  const frame = Buffer.allocUnsafeSlow(frameHeaderBytes + message.length);
  frame[0] = 0;
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, frameHeaderBytes);
  return frame;
}
