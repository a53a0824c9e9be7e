import { create, toBinary } from "@bufbuild/protobuf";
import { EmptyOpSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { encodePosition } from "@kpng/model/wire/local-message.ts";
import { MessageReader, MessageWriter } from "@kpng/model/wire/protobuf.ts";
import { type Frame, frameHeaderBytes, frameOf, syncFrame } from "../../items/frames.ts";
import { Between } from "../../store/derived.ts";
import { emptySnapshot, triggerTimes } from "../../store/snapshot.ts";
import { ackIntervalFor } from "./acknowledgement.ts";
import type { Batch } from "./rounds.ts";
import type { Subscribers } from "./subscribers.ts";

/**
 * Returns the sync marker that ends a batch; KPNG's empty one for subscribers without the extended feature. Subscribers
 * that advance between the same two snapshots share it, or get a copy with the digest of their own view.
 */
export function syncMarker(batch: Batch, subscribers: Subscribers, toExtended: boolean): Marker {
  if (!toExtended) return plainMarker;
  const { snapshot, before } = batch;
  const context = { batch, subscribers };
  // The traces in the marker of a first batch depend on the current time.
  if (before === undefined && snapshot.traces.length > 0) return makeMarker(context);
  return sharedMarker.of(before ?? emptySnapshot, snapshot, context);
}

/** The bytes of a sync marker. */
export class Marker {
  readonly frame: Frame;
  /** The frame with a digest field of zero at its end. */
  #template: Frame | undefined;

  constructor(frame: Frame) {
    this.frame = frame;
  }

  /** Returns the marker with a digest. *Cost:* a copy of the marker. */
  withDigest(digest: bigint): Frame {
    const copy = Buffer.from(this.#withZeroDigest());
    copy.writeBigUInt64LE(digest, copy.length - digestBytes);
    return copy;
  }

  #withZeroDigest(): Frame {
    if (this.#template !== undefined) return this.#template;
    const reader = new MessageReader(this.frame, frameHeaderBytes);
    writer.begin();
    // Fields may be in any order; at the end of the message, the digest is easy to overwrite.
    writer.message(reader.next(), Buffer.concat([reader.bytes(), zeroDigest]));
    this.#template = frameOf(writer.finish());
    return this.#template;
  }
}

const writer = new MessageWriter();

const digestBytes = 8;

/** The field EmptyOp.Digest. */
const zeroDigest = toBinary(EmptyOpSchema, create(EmptyOpSchema, { Digest: 0n }));

const plainMarker = new Marker(syncFrame());

interface MarkerContext {
  readonly batch: Batch;
  readonly subscribers: Subscribers;
}

const sharedMarker = new Between((_before, _snapshot, context: MarkerContext) => makeMarker(context));

/** Maximum number of trigger times in a marker. */
const maxTriggers = 100;

function makeMarker({ batch, subscribers: { store, open, now } }: MarkerContext): Marker {
  const { snapshot, before } = batch;
  const triggers = before === undefined ? [] : [...triggerTimes(before, snapshot)];
  const { traceparents, tracedNodes } = markerTraces(batch, open.size, now());
  const fields = {
    Revision: BigInt(snapshot.revision),
    Instance: store.instance,
    TakesAcks: true,
    TakesCounts: true,
    AckIntervalMs: ackIntervalFor(open.size),
    TriggeredAtMs: triggers
      .sort((a, b) => b - a)
      .slice(0, maxTriggers)
      .map(BigInt),
    StoredAtMicros: BigInt(Math.round(snapshot.storedAtMs * 1_000)),
    Traceparents: [...traceparents],
    TracedNodes: tracedNodes,
    Position: encodePosition(snapshot.position, store.instance),
  };
  return new Marker(syncFrame(fields));
}

/** Maximum age of a change that counts as the cause of a first batch, in milliseconds. */
const recentMs = 30_000;

/**
 * Returns the traces of the revisions in a batch, newest first. The first batch of a stream has the traces of the last
 * 30 s, whose changes the node may have missed.
 *
 * Not every node records its part of a trace, which would make thousands of spans. `tracedNodes` is the share of nodes
 * that do: the number that the trace asks for, divided by the number of open streams.
 */
export function markerTraces(
  { snapshot, before }: Pick<Batch, "snapshot" | "before">,
  openCount: number,
  nowMs: number,
): { readonly traceparents: readonly string[]; readonly tracedNodes: number } {
  const isCovered = (revision: number, storedAtMs: number): boolean =>
    before === undefined ? nowMs - storedAtMs < recentMs : revision > before.revision;
  const traced = snapshot.traces.filter(({ revision, storedAtMs }) => isCovered(revision, storedAtMs)).reverse();
  return {
    traceparents: traced.map(({ traceparent }) => traceparent),
    tracedNodes: (traced[0]?.nodes ?? 0) / Math.max(1, openCount),
  };
}
