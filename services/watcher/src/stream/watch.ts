import { fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { GlobalWatchReq } from "@kpng/model/gen/globalv1/api_pb.ts";
import { type OpItem, OpItemSchema, type WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Snapshot } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import { type Frame, frameHeaderBytes, messageIn, resetFrame, syncFrame } from "./frames.ts";
import { globalProjection } from "./global-projection.ts";
import { localProjection } from "./local-projection.ts";
import { resumeView } from "./local-resume.ts";
import type { LocalRequest } from "./local-units.ts";
import type { Changes, Projection } from "./projection.ts";
import { isExtended, isSameRequest, type ProxyNames, readHeldDigests, readLocalRequest } from "./requests.ts";
import type { StreamMetrics } from "./stream-metrics.ts";
import { type Batch, Subscription } from "./subscription.ts";
import { inTurns } from "./turns.ts";

export interface WatchContext {
  readonly store: Store;
  readonly proxyNames: ProxyNames;
  readonly metrics: StreamMetrics;
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
export function watchLocalFrames(
  context: WatchContext,
  requests: AsyncIterable<WatchReq>,
  signal: AbortSignal,
): AsyncIterable<Frame> {
  let last: LocalRequest | undefined;
  let projection: Projection | undefined;
  return watch("local", context, requests, signal, (message) => {
    const request = readLocalRequest(message, context.proxyNames);
    if (projection === undefined || last === undefined || !isSameRequest(request, last)) {
      projection = localProjection(request);
      last = request;
    }
    const held = readHeldDigests(message);
    const resume = held && ((snapshot: Snapshot) => resumeView(snapshot, request, held));
    return { projection, isExtended: request.isExtended, resume };
  });
}

/** globalv1.Sets.Watch as frames, like {@link watchLocalFrames}. */
export function watchGlobalFrames(
  context: WatchContext,
  requests: AsyncIterable<GlobalWatchReq>,
  signal: AbortSignal,
): AsyncIterable<Frame> {
  const make = (extended: boolean): Wanted => ({
    projection: globalProjection({ isExtended: extended, proxyName: context.proxyNames.standard }),
    isExtended: extended,
  });
  const [plain, extended] = [make(false), make(true)];
  return watch("global", context, requests, signal, (message) => (isExtended(message) ? extended : plain));
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

/** The marker of a batch; to a subscriber that is not extended it says nothing more, as KPNG's. */
export function syncOf({ snapshot }: Batch, { instance }: Store, toExtended: boolean): Frame {
  return syncFrame(toExtended ? { revision: snapshot.revision, instance } : undefined);
}

async function* watch<Request>(
  kind: "local" | "global",
  { store, metrics }: WatchContext,
  requests: AsyncIterable<Request>,
  signal: AbortSignal,
  read: (request: Request) => Wanted,
): AsyncIterable<Frame> {
  const subscription = new Subscription(store);
  let isFirst = true;
  metrics.subscribers.inc({ kind });
  try {
    for await (const request of requests) {
      const wanted = read(request);
      if (isFirst && wanted.resume === undefined) yield resetFrame;
      isFirst = false;
      const batch = await subscription.next(wanted.projection, signal, wanted.resume);
      if (batch === undefined) break;
      let last = syncOf(batch, store, wanted.isExtended);
      let held: Frame | undefined;
      let byteCount = last.length;
      for await (const piece of inTurns(batch.changes.frames(), batch.rank, signal)) {
        if (held !== undefined) yield held;
        held = piece;
        byteCount += piece.length;
      }
      if (signal.aborted) break;
      // Most batches are one short piece: piece and marker leave in one write.
      if (held !== undefined) last = Buffer.concat([held, last]);
      yield last;
      metrics.batches.inc({ kind });
      metrics.bytes.inc({ kind }, byteCount);
    }
    if (signal.aborted) throw new ConnectError("the watcher stops, or the client is gone", Code.Unavailable);
  } finally {
    metrics.subscribers.dec({ kind });
  }
}
