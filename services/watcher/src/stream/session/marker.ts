import type { MessageInitShape } from "@bufbuild/protobuf";
import type { EmptyOpSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { encodePosition } from "@kpng/model/wire/local-message.ts";
import { type Frame, syncFrame } from "../../items/frames.ts";
import { Between } from "../../store/derived.ts";
import { emptySnapshot, type Snapshot, triggerTimes } from "../../store/snapshot.ts";
import { ackIntervalFor } from "./acknowledgement.ts";
import type { Subscribers } from "./subscribers.ts";

/**
 * Returns the sync marker that ends a batch; for subscribers without the extended feature, it is KPNG's empty marker.
 * Subscribers that advance between the same two snapshots share the marker, or get a copy with the digest of their own
 * view.
 */
export function syncMarker(batch: Batch, subscribers: Subscribers, toExtended: boolean): Marker {
  if (!toExtended) return plainMarker;
  const { snapshot, before } = batch;
  const context = { batch, subscribers };
  // The traces in the marker of a first batch depend on the current time. AckIntervalMs depends on the number of
  // streams, but their number at the marker's first use will do until the next batch.
  if (before === undefined && snapshot.traces.length > 0) return makeMarker(context);
  return sharedMarker.of(before ?? emptySnapshot, snapshot, context);
}

/** The snapshots between which a subscriber advances. */
export interface Batch {
  readonly snapshot: Snapshot;
  /** The previous snapshot of the subscriber; undefined if it did not have the view before. */
  readonly before: Snapshot | undefined;
}

/** A sync marker that can be encoded with or without the digest of a view. */
export class Marker {
  readonly frame: Frame;
  /** The encoded marker with {@link placeholder} as its digest. */
  readonly #template: Buffer;
  readonly #digestAt: number;

  constructor(fields: MessageInitShape<typeof EmptyOpSchema>) {
    this.frame = syncFrame(fields);
    this.#template = Buffer.from(syncFrame({ ...fields, Digest: placeholder.readBigUInt64LE() }));
    this.#digestAt = this.#template.indexOf(placeholder);
  }

  /** Returns the marker with a digest, whose length is fixed (fixed64). *Cost:* a copy of the marker. */
  withDigest(digest: bigint): Frame {
    const copy = Buffer.from(this.#template);
    copy.writeBigUInt64LE(digest, this.#digestAt);
    return copy;
  }
}

/** A digest whose bytes occur in no other field, so that they show the position of the digest in an encoded marker. */
const placeholder = Buffer.from("1032547698badcfe", "hex");

const plainMarker = new Marker({});

interface MarkerContext {
  readonly batch: Batch;
  readonly subscribers: Subscribers;
}

const sharedMarker = new Between((_before, _snapshot, context: MarkerContext) => makeMarker(context));

/** Maximum number of trigger times in a marker, as api.proto states for `TriggeredAtMs`. */
const maxTriggers = 100;

function makeMarker({ batch, subscribers: { store, open, now } }: MarkerContext): Marker {
  const { snapshot, before } = batch;
  const triggers = before === undefined ? [] : [...triggerTimes(before, snapshot)];
  const { traceparents, tracedNodes } = markerTraces(batch, open.size, now());
  return new Marker({
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
  });
}

/** Maximum age of a change that counts as the cause of a first batch, in milliseconds. */
const recentMs = 30_000;

/**
 * Returns the traces of the revisions in a batch, newest first. The first batch of a stream contains the traces of the
 * last 30 s, because the node may have missed their changes.
 *
 * Only some nodes record their part of a trace, because otherwise there would be thousands of spans. `tracedNodes` is
 * the number that the newest trace asks for, divided among the open streams: for a node, the probability that it
 * records.
 */
export function markerTraces(
  { snapshot, before }: Batch,
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
