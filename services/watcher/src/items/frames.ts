import { create, toBinary } from "@bufbuild/protobuf";
import {
  BatchOpSchema,
  EmptyOpSchema,
  Encoding,
  KeepOpSchema,
  type OpItem,
  OpItemSchema,
  RefSchema,
  type Set as SetName,
  ValueSchema,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import { tagsOf } from "@kpng/model/wire/field-tags.ts";
import { MessageReader } from "@kpng/model/wire/message-reader.ts";
import { MessageWriter } from "@kpng/model/wire/message-writer.ts";

/**
 * Messages of a stream as ready gRPC frames, so that one encoding serves every subscriber.
 *
 * *Shape:* a byte 0 (not compressed), the length of the message in 4 bytes, big-endian, the message (an OpItem).
 */
export type Frame = Uint8Array;

/** Length of what comes before the message. */
export const frameHeaderBytes = 5;

const opTags = tagsOf(OpItemSchema);
const valueTags = tagsOf(ValueSchema);
const refTags = tagsOf(RefSchema);

const digestBytes = 8;

const writer = new MessageWriter();

/**
 * Puts an item. With `isKept` false the frame shares memory with other short-lived frames, and the caller must not keep
 * it.
 */
export function setFrame(set: SetName, path: string, bytes: Uint8Array, isKept = true): Frame {
  writer.begin();
  const value = writer.open(opTags.Set);
  writeRef(valueTags.Ref, set, path);
  writer.bytes(valueTags.Bytes, bytes);
  writer.close(value);
  return frameOf(writer.finish(), isKept);
}

/** Deletes an item. */
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

/** Begins the stream of a subscriber that holds nothing of the view. */
export const resetFrame: Frame = opFrame({ case: "Reset", value: create(EmptyOpSchema) });

/** Begins a stream instead of Reset; see KeepOp. */
export function keepFrame(buckets: Uint8Array): Frame {
  return opFrame({ case: "Keep", value: create(KeepOpSchema, { Buckets: buckets }) });
}

/** Many operations in one: `items` is an OpItems message of `size` bytes, compressed with Zstandard. */
export function batchFrame(items: Uint8Array, size: number): Frame {
  return opFrame({
    case: "Batch",
    value: create(BatchOpSchema, { Encoding: Encoding.Zstd, Items: items, Size: size }),
  });
}

/** What Sync tells an extended subscriber; see EmptyOp. */
export interface SyncMark {
  readonly revision: number;
  readonly instance: string;
  readonly storedAtMs: number;
  readonly triggeredAtMs: readonly number[];
  readonly traceparents: readonly string[];
  readonly tracedNodes: number;
  readonly ackIntervalMs: number;
}

/** The marker that closes a batch; without a mark it is empty, as KPNG's. */
export function syncFrame(mark?: SyncMark): Frame {
  const value = create(
    EmptyOpSchema,
    mark && {
      Revision: BigInt(mark.revision),
      Instance: mark.instance,
      TakesAcks: true,
      TakesCounts: true,
      AckIntervalMs: mark.ackIntervalMs,
      TriggeredAtMs: mark.triggeredAtMs.map(BigInt),
      StoredAtMicros: BigInt(Math.round(mark.storedAtMs * 1_000)),
      Traceparents: [...mark.traceparents],
      TracedNodes: mark.tracedNodes,
    },
  );
  return opFrame({ case: "Sync", value });
}

/** The marker of a batch, one for all who go the same way; to each it can tell the digest of its own view. */
export class Marker {
  readonly frame: Frame;
  /** The same with room for a digest at its end. */
  #template: Frame | undefined;
  /** The same, by the changes that come before it. */
  #closing: Map<Frame, Frame> | undefined;

  constructor(frame: Frame) {
    this.frame = frame;
  }

  /** *Cost:* a copy of it. */
  withDigest(digest: bigint): Frame {
    return filled(this.#withRoom(), digest);
  }

  /** Changes that many share, followed by the marker with the digest of one subscriber's view. *Cost:* a copy. */
  closing(changes: Frame, digest: bigint): Frame {
    this.#closing ??= new Map();
    return filled(
      getOrMake(this.#closing, changes, () => Buffer.concat([changes, this.#withRoom()])),
      digest,
    );
  }

  #withRoom(): Frame {
    if (this.#template !== undefined) return this.#template;
    const reader = new MessageReader(this.frame, frameHeaderBytes);
    writer.begin();
    // Fields may come in any order: at the end the digest can be filled in.
    writer.message(reader.next(), Buffer.concat([reader.bytes(), digestRoom]));
    this.#template = frameOf(writer.finish());
    return this.#template;
  }
}

/** The field EmptyOp.Digest. */
const digestRoom = toBinary(EmptyOpSchema, create(EmptyOpSchema, { Digest: 0n }));

/** A copy that ends with the digest. */
function filled(template: Frame, digest: bigint): Frame {
  const copy = Buffer.from(template);
  copy.writeBigUInt64LE(digest, copy.length - digestBytes);
  return copy;
}

/** The OpItem in a frame, encoded. */
export function messageIn(one: Frame): Uint8Array {
  return one.subarray(frameHeaderBytes);
}

/** The value in a frame of {@link setFrame}: a view of the frame's memory. */
export function valueIn(one: Frame): Uint8Array {
  const reader = new MessageReader(one, frameHeaderBytes);
  reader.next();
  reader.open();
  reader.next();
  reader.close(reader.open());
  return reader.next() === valueTags.Bytes ? reader.bytes() : one.subarray(one.length);
}

/** A frame of an operation that is rare enough for the library's encoder. */
function opFrame(op: OpItem["Op"]): Frame {
  return frameOf(toBinary(OpItemSchema, create(OpItemSchema, { Op: op })));
}

function frameOf(message: Uint8Array, isKept = true): Frame {
  const frame = (isKept ? Buffer.allocUnsafeSlow : Buffer.allocUnsafe)(frameHeaderBytes + message.length);
  frame[0] = 0;
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, frameHeaderBytes);
  return frame;
}
