import { create, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { EmptyOpSchema, type Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";

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
const keepBuckets = 1;
const valueRef = 1;
const valueBytes = 2;
const refSet = 1;
const refPath = 2;

export function setFrame(set: SetName, path: string, bytes: Uint8Array): Frame {
  const writer = new BinaryWriter().tag(opSet, WireType.LengthDelimited).fork();
  writeRef(writer.tag(valueRef, WireType.LengthDelimited).fork(), set, path).join();
  return frame(writer.tag(valueBytes, WireType.LengthDelimited).bytes(bytes).join());
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
            TriggeredAtMs: mark.triggeredAtMs.map(BigInt),
            StoredAtMicros: BigInt(Math.round(mark.storedAtMs * 1_000)),
            Traceparents: [...mark.traceparents],
            TracedNodes: mark.tracedNodes,
          }),
        );
  return frame(new BinaryWriter().tag(opSync, WireType.LengthDelimited).bytes(body));
}

/** The OpItem in a frame, encoded. */
export function messageIn(one: Frame): Uint8Array {
  return one.subarray(frameHeaderBytes);
}

function writeRef(writer: BinaryWriter, set: SetName, path: string): BinaryWriter {
  writer.tag(refSet, WireType.Varint).int32(set);
  return writer.tag(refPath, WireType.LengthDelimited).string(path);
}

function frame(writer: BinaryWriter): Frame {
  const message = writer.finish();
  const bytes = Buffer.allocUnsafeSlow(frameHeaderBytes + message.length);
  bytes[0] = 0;
  bytes.writeUInt32BE(message.length, 1);
  bytes.set(message, frameHeaderBytes);
  return bytes;
}
