import type { GlobalWatchReq } from "@kpng/model/gen/globalv1/api_pb.ts";
import type { WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Refusals } from "../../connection/limits.ts";
import { checkNodeRight, checkStateRight, type Rights } from "../../identity/rights.ts";
import type { NodeViewRequest } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import type { Store } from "../../store/store.ts";
import { globalProjection } from "../delta/global-projection.ts";
import { nodeProjection } from "../delta/node-projection.ts";
import { Acknowledgement, maxEarlier } from "./acknowledgement.ts";
import {
  isExtended,
  isSameRequest,
  type ProxyNames,
  readCount,
  readHeldDigests,
  readLocalRequest,
  readReceived,
  refuseRequest,
} from "./requests.ts";
import { roundsOf } from "./rounds.ts";
import type { StartLimits } from "./start-limits.ts";
import type { Subscribers } from "./subscribers.ts";
import { type Wanted, type WatchSink, WatchStream } from "./watch-stream.ts";

/**
 * Opens a call of localv1.Sets.Watch: registers a subscriber, and connects its decoded requests to a `WatchStream`.
 *
 * `makeFastWatch` calls it for gRPC over HTTP/2, and `watchOps` for all other protocols. The caller may decode an
 * acknowledgement itself. Separate from `WatchStream`, which knows neither node views nor the messages of clients.
 */
export const openLocalWatch: OpenWatch<WatchReq | Acknowledgement> = (
  { store, proxyNames, subscribers, startLimits, refusals },
  { peer, rights, userAgent },
  sink,
) => {
  const subscriber = subscribers.add("local", peer, store, isTool(userAgent));
  roundsOf(store).forViews();
  let last: NodeViewRequest | undefined;
  let lastMessage: WatchReq | undefined;
  let lastWanted: Wanted | undefined;
  let lastProjection: ReturnType<typeof nodeProjection> | undefined;
  const read = (message: WatchReq | Acknowledgement): Wanted | undefined => {
    if (message === lastMessage) return lastWanted;
    if (message instanceof Acknowledgement) {
      subscriber.acknowledge(message);
      return undefined;
    }
    if (message.Ack !== undefined) {
      const { length } = message.Ack.Earlier;
      if (length > maxEarlier) {
        throw refuseRequest(refusals, peer, `Ack has ${length} earlier revisions, more than ${maxEarlier}`);
      }
      subscriber.acknowledge(Acknowledgement.fromMessage(message.Ack));
      return undefined;
    }
    const request = readLocalRequest(message, proxyNames);
    checkNodeRight(rights, request.nodeName);
    const isSame = last !== undefined && isSameRequest(request, last);
    const projection = (isSame ? lastProjection : undefined) ?? nodeProjection(request);
    last = request;
    subscriber.nodeName = request.nodeName;
    subscriber.proxyName = request.proxyName;
    subscriber.introduce(message.Subscriber);
    subscriber.failedBefore(message.LastFailure);
    const held = readHeldDigests(message);
    const resume = held && ((snapshot: Snapshot) => projection.resume(snapshot, held));
    const [count, received] = [readCount(message), readReceived(message)];
    const wanted = { projection, isExtended: request.isExtended, resume, count, received };
    lastProjection = projection;
    [lastMessage, lastWanted] = resume === undefined ? [message, wanted] : [undefined, undefined];
    return wanted;
  };
  const enter = ({ resume }: Wanted) => startLimits?.enter(resume === undefined ? "whole" : "resumed");
  return new WatchStream({ store, subscriber, sink, read, enter, openCount: () => subscribers.open.size });
};

/** The parts of the watcher that all Watch calls share. */
export interface WatchContext {
  readonly store: Store;
  /** Limits the streams that wait for a first batch. Default no limit. */
  readonly startLimits?: StartLimits | undefined;
  readonly proxyNames: ProxyNames;
  readonly subscribers: Subscribers;
  /** Counts requests that exceed a limit. Default not counted. */
  readonly refusals?: Refusals | undefined;
}

/** Opens a Watch call. The caller closes it when the client disconnects. */
export type OpenWatch<Request> = (context: WatchContext, client: WatchClient, sink: WatchSink) => WatchStream<Request>;

/** The client of a Watch call. */
export interface WatchClient {
  /** See formatPeer. */
  readonly peer: string;
  readonly rights: Rights;
  /** The HTTP header user-agent; undefined if absent. */
  readonly userAgent?: string | undefined;
}

/**
 * Opens a call of globalv1.Sets.Watch, the state of the whole cluster for relays. Called like {@link openLocalWatch}.
 */
export const openGlobalWatch: OpenWatch<GlobalWatchReq> = (
  { store, proxyNames, subscribers, startLimits },
  { peer, rights, userAgent },
  sink,
) => {
  const subscriber = subscribers.add("global", peer, store, isTool(userAgent));
  const make = (extended: boolean): Wanted => ({
    projection: globalProjection({ isExtended: extended, proxyName: proxyNames.standard }),
    isExtended: extended,
    count: 1,
    received: undefined,
  });
  const [plain, extended] = [make(false), make(true)];
  const read = (message: GlobalWatchReq): Wanted => {
    checkStateRight(rights);
    subscriber.introduce(message.Subscriber);
    return isExtended(message) ? extended : plain;
  };
  const enter = () => startLimits?.enter("global");
  return new WatchStream({ store, subscriber, sink, read, enter, openCount: () => subscribers.open.size });
};

/**
 * True if a client is a tool of people, which sends no description of itself. KPNG's Go clients send none either, but
 * their user agent begins with "grpc-go/".
 */
function isTool(userAgent: string | undefined): boolean {
  return /^(grpcurl|curl|evans|buf|httpie|wget|postman|mozilla)\b/i.test(userAgent ?? "");
}
