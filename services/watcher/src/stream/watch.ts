import { fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { GlobalWatchReq } from "@kpng/model/gen/globalv1/api_pb.ts";
import { type OpItem, OpItemSchema, type WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import type { Snapshot } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import { Acknowledgement } from "./acknowledgement.ts";
import type { Admission } from "./admission.ts";
import { type Frame, frameHeaderBytes, messageIn } from "./frames.ts";
import { globalProjection } from "./global-projection.ts";
import { localProjection } from "./local-projection.ts";
import { resumeView } from "./local-resume.ts";
import type { LocalRequest } from "./local-units.ts";
import type { Projection } from "./projection.ts";
import {
  isExtended,
  isSameRequest,
  type ProxyNames,
  readCount,
  readHeldDigests,
  readLocalRequest,
  readReceived,
} from "./requests.ts";
import type { Subscribers } from "./subscribers.ts";
import { type Wanted, type WatchSink, WatchStream } from "./watch-stream.ts";

export interface WatchContext {
  readonly store: Store;
  /** Who may wait for a first batch. Default everybody. */
  readonly admission?: Admission | undefined;
  readonly proxyNames: ProxyNames;
  readonly subscribers: Subscribers;
}

/** Begins a call of Watch that comes from `peer` (see formatPeer); the caller closes it when the client is gone. */
export type OpenWatch<Request> = (context: WatchContext, peer: string, sink: WatchSink) => WatchStream<Request>;

/** localv1.Sets.Watch; an acknowledgement may come decoded. */
export const openLocalWatch: OpenWatch<WatchReq | Acknowledgement> = (
  { store, proxyNames, subscribers, admission },
  peer,
  sink,
) => {
  const subscriber = subscribers.add("local", peer, store);
  let last: LocalRequest | undefined;
  let lastMessage: WatchReq | undefined;
  let lastWanted: Wanted | undefined;
  let lastProjection: Projection | undefined;
  const read = (message: WatchReq | Acknowledgement): Wanted | undefined => {
    if (message === lastMessage) return lastWanted;
    if (message instanceof Acknowledgement) {
      subscriber.acknowledge(message);
      return undefined;
    }
    if (message.Ack !== undefined) {
      subscriber.acknowledge(Acknowledgement.fromMessage(message.Ack));
      return undefined;
    }
    const request = readLocalRequest(message, proxyNames);
    const isSame = last !== undefined && isSameRequest(request, last);
    const projection = (isSame ? lastProjection : undefined) ?? localProjection(request);
    last = request;
    subscriber.nodeName = request.nodeName;
    subscriber.proxyName = request.proxyName;
    subscriber.introduce(message.Subscriber);
    const held = readHeldDigests(message);
    const resume = held && ((snapshot: Snapshot) => resumeView(snapshot, request, held));
    const [count, received] = [readCount(message), readReceived(message)];
    const wanted = { projection, isExtended: request.isExtended, resume, count, received };
    lastProjection = projection;
    [lastMessage, lastWanted] = resume === undefined ? [message, wanted] : [undefined, undefined];
    return wanted;
  };
  const enter = ({ resume }: Wanted) => admission?.enter(resume === undefined ? "whole" : "resumed");
  return new WatchStream({ store, subscriber, sink, read, enter, openCount: () => subscribers.open.size });
};

/** globalv1.Sets.Watch. */
export const openGlobalWatch: OpenWatch<GlobalWatchReq> = (
  { store, proxyNames, subscribers, admission },
  peer,
  sink,
) => {
  const subscriber = subscribers.add("global", peer, store);
  const make = (extended: boolean): Wanted => ({
    projection: globalProjection({ isExtended: extended, proxyName: proxyNames.standard }),
    isExtended: extended,
    count: 1,
    received: undefined,
  });
  const [plain, extended] = [make(false), make(true)];
  const read = (message: GlobalWatchReq): Wanted => (isExtended(message) ? extended : plain);
  const enter = () => admission?.enter("global");
  return new WatchStream({ store, subscriber, sink, read, enter, openCount: () => subscribers.open.size });
};

/** One call of Watch as the protocols of connect-node see it. */
export interface WatchCall<Request> {
  readonly requests: AsyncIterable<Request>;
  readonly peer: string;
  readonly signal: AbortSignal;
  /** See leaveKey. */
  readonly leave: AbortSignal;
}

/**
 * The operations of a call.
 *
 * Errors: ConnectError; UNAVAILABLE when `signal` aborts.
 */
export async function* watchOps<Request>(
  open: OpenWatch<Request>,
  context: WatchContext,
  { requests, peer, signal, leave }: WatchCall<Request>,
): AsyncGenerator<OpItem, void, void> {
  const pieces: Frame[] = [];
  const changed = new Wakeup();
  let end: { readonly error: ConnectError | undefined } | undefined;
  const stream = open(context, peer, {
    write: (piece) => {
      pieces.push(piece);
      changed.wake();
      return false;
    },
    room: () => changed.wake(),
    end: (error) => {
      end = { error };
      changed.wake();
    },
  });
  const onLeave = (): void => stream.leave(ConnectError.from(leave.reason));
  leave.addEventListener("abort", onLeave, { once: true });
  if (leave.aborted) onLeave();
  const over = new AbortController();
  const until = AbortSignal.any([signal, over.signal]);
  takeAll(stream, requests, changed, until).catch((error: unknown) => stream.leave(ConnectError.from(error)));
  try {
    while (!signal.aborted) {
      const piece = pieces.shift();
      if (piece !== undefined) {
        yield* opsIn(piece);
        if (pieces.length === 0) stream.drained();
      } else if (end === undefined) {
        await changed.wait(signal);
      } else if (end.error === undefined) {
        return;
      } else {
        throw end.error;
      }
    }
    throw new ConnectError("the watcher stops, or the client is gone", Code.Unavailable);
  } finally {
    leave.removeEventListener("abort", onLeave);
    stream.close();
    over.abort();
  }
}

async function takeAll<Request>(
  stream: WatchStream<Request>,
  requests: AsyncIterable<Request>,
  changed: Wakeup,
  until: AbortSignal,
): Promise<void> {
  for await (const request of requests) {
    while (stream.isFull && !until.aborted) await changed.wait(until);
    if (until.aborted) return;
    stream.take(request);
  }
  stream.finish();
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
