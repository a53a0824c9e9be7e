import { fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { GlobalWatchReq } from "@kpng/model/gen/globalv1/api_pb.ts";
import { type OpItem, OpItemSchema, type WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Snapshot } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import type { Admission, Beginning } from "./admission.ts";
import type { Place } from "./admission-room.ts";
import { type Frame, frameHeaderBytes, messageIn, resetFrame } from "./frames.ts";
import { globalProjection } from "./global-projection.ts";
import { endWhen } from "./leave.ts";
import { localProjection } from "./local-projection.ts";
import { resumeView } from "./local-resume.ts";
import type { LocalRequest } from "./local-units.ts";
import type { Changes, Projection } from "./projection.ts";
import { isExtended, isSameRequest, type ProxyNames, readHeldDigests, readLocalRequest } from "./requests.ts";
import type { Subscriber, SubscriberKind } from "./subscriber.ts";
import type { Subscribers } from "./subscribers.ts";
import { syncMarker } from "./sync-marker.ts";
import { takeAcks } from "./take-acks.ts";
import { inTurns } from "./turns.ts";

export interface WatchContext {
  readonly store: Store;
  /** Who may wait for a first batch. Default everybody. */
  readonly admission?: Admission | undefined;
  readonly proxyNames: ProxyNames;
  readonly subscribers: Subscribers;
}

/** One call of Watch. */
export interface WatchCall<Request> {
  readonly requests: AsyncIterable<Request>;
  /** Where it comes from; see formatPeer. */
  readonly peer: string;
  readonly signal: AbortSignal;
  /** See leaveKey. */
  readonly leave: AbortSignal;
}

/** What one request asks for. */
interface Wanted {
  readonly projection: Projection;
  /** What the stream begins with in place of Reset and everything; undefined for a subscriber that holds nothing. */
  readonly resume?: ((snapshot: Snapshot) => Changes) | undefined;
  readonly isExtended: boolean;
}

/**
 * localv1.Sets.Watch as frames: each piece holds whole frames, one or many. The order is in the proto file.
 *
 * Errors: ConnectError.
 */
export function watchLocalFrames(context: WatchContext, call: WatchCall<WatchReq>): AsyncIterable<Frame> {
  let last: LocalRequest | undefined;
  let projection: Projection | undefined;
  const takeOthers = (requests: AsyncIterable<WatchReq>, subscriber: Subscriber): AsyncIterable<WatchReq> =>
    takeAcks(requests, (ack) => subscriber.acknowledge(ack));
  return watch("local", context, call, takeOthers, (message, subscriber) => {
    const request = readLocalRequest(message, context.proxyNames);
    if (projection === undefined || last === undefined || !isSameRequest(request, last)) {
      projection = localProjection(request);
      last = request;
      subscriber.nodeName = request.nodeName;
      subscriber.proxyName = request.proxyName;
    }
    subscriber.introduce(message.Subscriber);
    const held = readHeldDigests(message);
    const resume = held && ((snapshot: Snapshot) => resumeView(snapshot, request, held));
    return { projection, isExtended: request.isExtended, resume };
  });
}

/** globalv1.Sets.Watch as frames, like {@link watchLocalFrames}. */
export function watchGlobalFrames(context: WatchContext, call: WatchCall<GlobalWatchReq>): AsyncIterable<Frame> {
  const make = (extended: boolean): Wanted => ({
    projection: globalProjection({ isExtended: extended, proxyName: context.proxyNames.standard }),
    isExtended: extended,
  });
  const [plain, extended] = [make(false), make(true)];
  const read = (message: GlobalWatchReq): Wanted => (isExtended(message) ? extended : plain);
  return watch("global", context, call, (requests) => requests, read);
}

/** The same as messages, for the protocols that wrap them in their own way. */
export async function* toOps(pieces: AsyncIterable<Frame>): AsyncIterable<OpItem> {
  for await (const piece of pieces) yield* opsIn(piece);
}

/** The operations of a piece of whole frames. */
export function* opsIn(piece: Frame): Iterable<OpItem> {
  const view = new DataView(piece.buffer, piece.byteOffset, piece.byteLength);
  for (let offset = 0; offset < piece.length; ) {
    const end = offset + frameHeaderBytes + view.getUint32(offset + 1);
    yield fromBinary(OpItemSchema, messageIn(piece.subarray(offset, end)));
    offset = end;
  }
}

async function* watch<Request>(
  kind: SubscriberKind,
  { store, subscribers, admission }: WatchContext,
  { requests, peer, signal, leave }: WatchCall<Request>,
  takeOthers: (requests: AsyncIterable<Request>, subscriber: Subscriber) => AsyncIterable<Request>,
  read: (request: Request, subscriber: Subscriber) => Wanted,
): AsyncIterable<Frame> {
  const subscriber = subscribers.add(kind, peer, store);
  const idleSignal = AbortSignal.any([signal, leave]);
  let isFirst = true;
  let place: Place | undefined;
  try {
    for await (const request of takeOthers(endWhen(leave, requests), subscriber)) {
      const wanted = read(request, subscriber);
      subscriber.asked();
      if (isFirst) place = admission?.enter(beginningOf(kind, wanted));
      if (isFirst && wanted.resume === undefined) yield resetFrame;
      isFirst = false;
      const batch = await subscriber.subscription.next(wanted.projection, idleSignal, wanted.resume);
      if (batch === undefined) break;
      let last = syncMarker(batch, store, wanted.isExtended, subscribers.open.size);
      let held: Frame | undefined;
      let byteCount = last.length;
      for await (const piece of inTurns(batch.changes.frames(), batch.rank, signal)) {
        if (held !== undefined) yield held;
        place?.wrote();
        held = piece;
        byteCount += piece.length;
      }
      if (signal.aborted) break;
      // Most batches are one short piece: piece and marker leave in one write.
      if (held !== undefined) last = Buffer.concat([held, last]);
      // Before it is written: the acknowledgement may be here before the writer comes back.
      const { before, snapshot, computedAtMs } = batch;
      subscriber.sent({ after: before?.revision ?? 0, revision: snapshot.revision, computedAtMs, byteCount });
      yield last;
      place?.done();
    }
    if (signal.aborted) throw new ConnectError("the watcher stops, or the client is gone", Code.Unavailable);
    if (leave.aborted) throw leave.reason;
  } finally {
    place?.close();
    subscriber.close();
  }
}

function beginningOf(kind: SubscriberKind, { resume }: Wanted): Beginning {
  if (kind === "global") return "global";
  return resume === undefined ? "whole" : "resumed";
}
