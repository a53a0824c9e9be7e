import { isDeepStrictEqual } from "node:util";
import { Code, ConnectError } from "@connectrpc/connect";
import type { GlobalWatchReq } from "@kpng/model/gen/globalv1/api_pb.ts";
import { Feature, type WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";
import { BucketDigests } from "@kpng/model/wire/digest.ts";
import type { Refusals } from "../../connection/limits.ts";
import { checkNodeRight, checkStateRight, type Rights } from "../../identity/rights.ts";
import type { NodeViewRequest } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import type { Store } from "../../store/store.ts";
import { globalProjection } from "../delta/global-projection.ts";
import { nodeProjection } from "../delta/node-projection.ts";
import type { Projection } from "../delta/projection.ts";
import { maxEarlier, readAcknowledgement } from "./acknowledgement.ts";
import type { Subscribers } from "./subscribers.ts";
import { type BatchRequest, type WatchSink, WatchStream } from "./watch-stream.ts";

/** The proxy names that the watcher serves: values of the label `service.kubernetes.io/service-proxy-name`. */
export interface ProxyNames {
  /** The name for subscribers that send none; "" selects the Services without the label. */
  readonly standard: string;
  /** The only names that subscribers may request; undefined allows any. */
  readonly allowed: readonly string[] | undefined;
}

/**
 * Returns the proxy names from the options `--service-proxy-name`. Without such options, all names are served, and the
 * default is "".
 */
export function proxyNamesOf(options: readonly string[]): ProxyNames {
  return { standard: options[0] ?? "", allowed: options.length === 0 ? undefined : options };
}

/** Returns the view that a subscriber requests. Errors: INVALID_ARGUMENT. */
function readLocalRequest(request: WatchReq, names: ProxyNames): NodeViewRequest {
  return {
    nodeName: readNodeName(request.NodeName),
    proxyName: readProxyName(request.ServiceProxyName, names),
    isExtended: request.Features.includes(Feature.Extended),
    wantsNode: request.Features.includes(Feature.NodeItem),
    takesBatches: request.Features.includes(Feature.Batches),
  };
}

/** Returns the newest snapshot. Errors: UNAVAILABLE until the store is synced. */
export function syncedSnapshot({ snapshot, missingKinds }: Store): Snapshot {
  if (snapshot.isSynced) return snapshot;
  throw new ConnectError(`waiting for the first list of ${missingKinds.join(", ")}`, Code.Unavailable);
}

/** Maximum number of batches in one request. */
const maxCount = 1_000;

/** Returns the digests of the view that the subscriber holds; undefined if it sent none. Errors: INVALID_ARGUMENT. */
function readDigests({ HeldDigests: bytes }: WatchReq): BucketDigests | undefined {
  const digests = BucketDigests.fromBytes(bytes);
  if (digests !== undefined || bytes.length === 0) return digests;
  throw new ConnectError(`HeldDigests has an invalid length of ${bytes.length} bytes`, Code.InvalidArgument);
}

/** Returns the node name of a request; "" is a node without endpoints. Errors: INVALID_ARGUMENT if it is too long. */
export function readNodeName(name: string): string {
  if (name.length > 253) {
    throw new ConnectError(`the node name has ${name.length} characters, more than 253`, Code.InvalidArgument);
  }
  return name;
}

/** Returns the proxy name of a request. Errors: INVALID_ARGUMENT if that name is not served. */
export function readProxyName(name: string, names: ProxyNames): string {
  if (name === "") return names.standard;
  if (names.allowed !== undefined && !names.allowed.includes(name)) {
    throw new ConnectError(
      `this watcher does not serve the proxy name "${name}"; --service-proxy-name allows: "${names.allowed.join('", "')}"`,
      Code.InvalidArgument,
    );
  }
  return name;
}

/** Parts of the watcher that all Watch calls share. */
export interface WatchContext {
  readonly proxyNames: ProxyNames;
  readonly subscribers: Subscribers;
  /** Counts requests that exceed a limit. Default: they are not counted. */
  readonly refusals?: Refusals | undefined;
}

/** The client of a Watch call. */
interface WatchClient {
  /** The client's address; see formatPeer. */
  readonly peer: string;
  readonly rights: Rights;
  /** The HTTP header user-agent; undefined if absent. */
  readonly userAgent?: string | undefined;
}

/** Opens a Watch call. The caller closes it when the client disconnects. */
export type OpenWatch<Request> = (context: WatchContext, client: WatchClient, sink: WatchSink) => WatchStream<Request>;

/** Opens a call of localv1.Sets.Watch: registers a subscriber and connects its requests to a `WatchStream`. */
export const openLocalWatch: OpenWatch<WatchReq> = (context, { peer, rights, userAgent }, sink) => {
  const { proxyNames, subscribers, refusals } = context;
  const subscriber = subscribers.make("local", peer, isTool(userAgent));
  let last: { readonly request: NodeViewRequest; readonly projection: Required<Projection> } | undefined;
  const read = (message: WatchReq): BatchRequest | undefined => {
    if (message.Ack !== undefined) {
      const { length } = message.Ack.Earlier;
      if (length > maxEarlier) {
        const reason = `Ack has ${length} earlier revisions, more than ${maxEarlier}`;
        refusals?.add("request", peer, { reason });
        throw new ConnectError(reason, Code.InvalidArgument);
      }
      subscriber.acknowledge(readAcknowledgement(message.Ack));
      return undefined;
    }
    const request = readLocalRequest(message, proxyNames);
    checkNodeRight(rights, request.nodeName);
    // Only now, because a client without rights may open a call and send no request.
    subscriber.open();
    // A request for the same view must have the same projection object; see BatchRequest.
    const isSameView = isDeepStrictEqual(request, last?.request);
    const projection = (isSameView ? last?.projection : undefined) ?? nodeProjection(request);
    last = { request, projection };
    subscriber.nodeName = request.nodeName;
    subscriber.proxyName = request.proxyName;
    subscriber.introduce(message.Subscriber);
    subscriber.failedBefore(message.LastFailure);
    const received = message.Received === 0n ? undefined : Number(message.Received);
    const count = Math.min(Math.max(1, message.Count), maxCount);
    const batchRequest = { projection, isExtended: request.isExtended, count, received };
    const digests = readDigests(message);
    if (digests === undefined) return batchRequest;
    return { ...batchRequest, resume: (snapshot) => projection.resume(snapshot, digests) };
  };
  return new WatchStream({ subscribers, subscriber, sink, read });
};

/** Opens a call of globalv1.Sets.Watch, which sends the state of the whole cluster to relays. */
export const openGlobalWatch: OpenWatch<GlobalWatchReq> = (context, { peer, rights, userAgent }, sink) => {
  const { proxyNames, subscribers } = context;
  const subscriber = subscribers.make("global", peer, isTool(userAgent));
  const make = (isExtended: boolean): BatchRequest => ({
    projection: globalProjection({ isExtended, proxyName: proxyNames.standard }),
    isExtended,
    count: 1,
    received: undefined,
  });
  const [plain, extended] = [make(false), make(true)];
  const read = (message: GlobalWatchReq): BatchRequest => {
    checkStateRight(rights);
    subscriber.open();
    subscriber.introduce(message.Subscriber);
    return message.Features.includes(Feature.Extended) ? extended : plain;
  };
  return new WatchStream({ subscribers, subscriber, sink, read });
};

/**
 * True if a client is a tool that people use. Such tools send no description of themselves, so they are recognized by
 * their user agent. KPNG's clients ("grpc-go/") are not tools.
 */
function isTool(userAgent: string | undefined): boolean {
  return /^(grpcurl|curl|evans|buf|httpie|wget|postman|mozilla)\b/i.test(userAgent ?? "");
}
