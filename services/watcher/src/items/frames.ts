import { create, toBinary } from "@bufbuild/protobuf";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { EmptyOpSchema, Encoding, type Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import { writeVarint } from "@kpng/model/wire/varint.ts";

/**
 * Messages of a stream as ready gRPC frames, so that one encoding serves every subscriber.
 *
 * *Shape:* a byte 0 (not compressed), the length of the message in 4 bytes, big-endian, the message (an OpItem).
 */
export type Frame = Uint8Array;

/** Length of what comes before the message. */
export const frameHeaderBytes = 5;

// Fields of OpItem, Value and Ref; the proto file gives them.
const opSync = 1;
const opSet = 2;
const opDelete = 3;
const opReset = 4;
const opKeep = 100;
const syncDigest = 103;
const digestBytes = 8;
const opBatch = 101;
const keepBuckets = 1;
const batchEncoding = 1;
const batchItems = 2;
const batchSize = 3;
const valueRef = 1;
const valueBytes = 2;
const refSet = 1;
const refPath = 2;

/** With `isKept` false it shares its memory with others that come and go: it must not be held on to. */
export function setFrame(set: SetName, path: string, bytes: Uint8Array, isKept = true): Frame {
  const pathLength = Buffer.byteLength(path);
  const refLength = 1 + lengthOfVarint(set) + 1 + lengthOfVarint(pathLength) + pathLength;
  const valueLength = 1 + lengthOfVarint(refLength) + refLength + 1 + lengthOfVarint(bytes.length) + bytes.length;
  // Written by hand: these are most of what is ever sent, and a writer costs as much as all the rest of an item.
  const one = emptyFrame(1 + lengthOfVarint(valueLength) + valueLength, isKept);
  let end = writeLength(one, frameHeaderBytes, opSet, valueLength);
  end = writeLength(one, end, valueRef, refLength);
  one[end] = tagOf(refSet, WireType.Varint);
  end = writeVarint(one, end + 1, set);
  end = writeLength(one, end, refPath, pathLength);
  end += one.write(path, end);
  end = writeLength(one, end, valueBytes, bytes.length);
  one.set(bytes, end);
  return one;
}

export function deleteFrame(set: SetName, path: string): Frame {
  return frame(writeRef(new BinaryWriter().tag(opDelete, WireType.LengthDelimited).fork(), set, path).join());
}

export const resetFrame: Frame = frame(
  new BinaryWriter().tag(opReset, WireType.LengthDelimited).bytes(new Uint8Array()),
);

/** Begins a stream instead of Reset; see KeepOp. */
export function keepFrame(buckets: Uint8Array): Frame {
  const writer = new BinaryWriter().tag(opKeep, WireType.LengthDelimited).fork();
  return frame(writer.tag(keepBuckets, WireType.LengthDelimited).bytes(buckets).join());
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

/** The marker that closes a batch; without a mark it says nothing more, as KPNG's. */
export function syncFrame(mark?: SyncMark): Frame {
  const body =
    mark === undefined
      ? new Uint8Array()
      : toBinary(
          EmptyOpSchema,
          create(EmptyOpSchema, {
            Revision: BigInt(mark.revision),
            Instance: mark.instance,
            TakesAcks: true,
            TakesCounts: true,
            AckIntervalMs: mark.ackIntervalMs,
            TriggeredAtMs: mark.triggeredAtMs.map(BigInt),
            StoredAtMicros: BigInt(Math.round(mark.storedAtMs * 1_000)),
            Traceparents: [...mark.traceparents],
            TracedNodes: mark.tracedNodes,
          }),
        );
  return frame(new BinaryWriter().tag(opSync, WireType.LengthDelimited).bytes(body));
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
    const reader = new BinaryReader(messageIn(this.frame));
    reader.tag();
    const room = new BinaryWriter().tag(syncDigest, WireType.Bit64).fixed64(0).finish();
    const body = Buffer.concat([reader.bytes(), room]);
    this.#template = frame(new BinaryWriter().tag(opSync, WireType.LengthDelimited).bytes(body));
    return this.#template;
  }
}

const digestBuffer = new Uint8Array(digestBytes);
const digestView = new DataView(digestBuffer.buffer);

/** A copy that ends with the digest. */
function filled(template: Frame, digest: bigint): Frame {
  const copy = Buffer.from(template);
  digestView.setBigUint64(0, digest, true);
  copy.set(digestBuffer, copy.length - digestBytes);
  return copy;
}

/** The OpItem in a frame, encoded. */
export function messageIn(one: Frame): Uint8Array {
  return one.subarray(frameHeaderBytes);
}

/** Many operations in one: `items` is an OpItems message of `size` bytes, compressed with Zstandard. */
export function batchFrame(items: Uint8Array, size: number): Frame {
  const writer = new BinaryWriter().tag(opBatch, WireType.LengthDelimited).fork();
  writer.tag(batchEncoding, WireType.Varint).int32(Encoding.Zstd);
  writer.tag(batchItems, WireType.LengthDelimited).bytes(items);
  return frame(writer.tag(batchSize, WireType.Varint).uint32(size).join());
}

/** The value in a frame of Set: its last field. */
export function valueIn(one: Frame): Uint8Array {
  // The operation's tag and length, then Value's first field, which is as long as it says, then tag and length of the value.
  const value = skipLength(one, frameHeaderBytes + 1);
  const ref = skipLength(one, value.end + 1);
  const bytes = skipLength(one, ref.end + ref.length + 1);
  return one.subarray(bytes.end, bytes.end + bytes.length);
}

/** Reads a varint; `end` is where it ends. */
function skipLength(bytes: Uint8Array, start: number): { readonly length: number; readonly end: number } {
  let length = 0;
  let end = start;
  for (let shift = 0; ; shift += 7, end += 1) {
    const byte = bytes[end] ?? 0;
    length |= (byte & 0x7f) << shift;
    if (byte < 0x80) return { length, end: end + 1 };
  }
}

function writeRef(writer: BinaryWriter, set: SetName, path: string): BinaryWriter {
  writer.tag(refSet, WireType.Varint).int32(set);
  return writer.tag(refPath, WireType.LengthDelimited).string(path);
}

function frame(writer: BinaryWriter): Frame {
  const message = writer.finish();
  const bytes = emptyFrame(message.length);
  bytes.set(message, frameHeaderBytes);
  return bytes;
}

function emptyFrame(length: number, isKept = true): Buffer {
  const bytes = (isKept ? Buffer.allocUnsafeSlow : Buffer.allocUnsafe)(frameHeaderBytes + length);
  bytes[0] = 0;
  bytes.writeUInt32BE(length, 1);
  return bytes;
}

function tagOf(field: number, type: WireType): number {
  return (field << 3) | type;
}

/** Writes the beginning of a field that has a length; returns where its content begins. */
function writeLength(bytes: Uint8Array, start: number, field: number, length: number): number {
  bytes[start] = tagOf(field, WireType.LengthDelimited);
  return writeVarint(bytes, start + 1, length);
}

function lengthOfVarint(value: number): number {
  return value < 0x80 ? 1 : value < 0x4000 ? 2 : value < 0x20_0000 ? 3 : value < 0x1000_0000 ? 4 : 5;
}
