import { Code, ConnectError } from "@connectrpc/connect";
import type { GlobalWatchReq } from "@kpng/model/gen/globalv1/api_pb.ts";
import { Feature, type WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";
import { BucketDigests } from "@kpng/model/wire/digest.ts";
import type { Refusals } from "../../connection/limits.ts";
import type { NodeViewRequest } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import type { Store } from "../../store/store.ts";

/**
 * The proxy names that the watcher serves: values of the label `service.kubernetes.io/service-proxy-name`.
 *
 * The functions of this file check what clients request against these names and other limits. `openLocalWatch`,
 * `openGlobalWatch`, the NodeViewService and the inspection methods call them before they act on a request. Separate,
 * because all of these need the same checks.
 */
export interface ProxyNames {
  /** The name for subscribers that send none; "" selects the Services without the label. */
  readonly standard: string;
  /** The only names that subscribers may request; undefined allows any. */
  readonly allowed: readonly string[] | undefined;
}

/**
 * Returns the names of the `--service-proxy-name` options, for `routesOptions`. The first is the default; other names
 * are not served.
 */
export function proxyNamesOf(options: readonly string[]): ProxyNames {
  return { standard: options[0] ?? "", allowed: options.length === 0 ? undefined : options };
}

/** Returns the view that a subscriber requests. Errors: INVALID_ARGUMENT. */
export function readLocalRequest(request: WatchReq, names: ProxyNames): NodeViewRequest {
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

/**
 * Counts a request that exceeds a limit, and returns the error that ends its call: INVALID_ARGUMENT with the reason.
 * `openLocalWatch` calls it for entries, and `makeFastWatch` for fields.
 */
export function refuseRequest(refusals: Refusals | undefined, peer: string, reason: string): ConnectError {
  refusals?.add("request", peer, { reason });
  return new ConnectError(reason, Code.InvalidArgument);
}

/** Maximum number of batches in one request. */
const maxCount = 1_000;

/** Returns the number of batches that a request asks for, from 1. */
export function readCount({ Count: count }: WatchReq): number {
  return Math.min(Math.max(1, count), maxCount);
}

/** Returns the revision that the client has received; undefined if the request does not name it. */
export function readReceived({ Received: received }: WatchReq): number | undefined {
  return received === 0n ? undefined : Number(received);
}

/** Returns the digests of the items that the subscriber holds; undefined if it holds none. Errors: INVALID_ARGUMENT. */
export function readHeldDigests({ HeldDigests: bytes }: WatchReq): BucketDigests | undefined {
  if (bytes.length === 0) return undefined;
  const held = BucketDigests.fromBytes(bytes);
  if (held === undefined)
    throw new ConnectError(`HeldDigests has an invalid length of ${bytes.length} bytes`, Code.InvalidArgument);
  return held;
}

/** True if a relay's request has the feature Extended: it understands the fields that kpng adds to KPNG's messages. */
export function isExtended(request: GlobalWatchReq): boolean {
  return request.Features.includes(Feature.Extended);
}

/** Returns the node name of a request. Errors: INVALID_ARGUMENT for a name that is too long for Kubernetes. */
export function readNodeName(name: string): string {
  if (name.length > 253) {
    throw new ConnectError(`the node name has ${name.length} characters, more than 253`, Code.InvalidArgument);
  }
  return name;
}

/**
 * Returns the proxy name that a request selects; "" selects the default. Errors: INVALID_ARGUMENT if it is not served.
 */
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

/** True if two requests ask for the same view; `openLocalWatch` then continues the view instead of starting another. */
export function isSameRequest(a: NodeViewRequest, b: NodeViewRequest): boolean {
  return (
    a.nodeName === b.nodeName &&
    a.proxyName === b.proxyName &&
    a.isExtended === b.isExtended &&
    a.wantsNode === b.wantsNode &&
    a.takesBatches === b.takesBatches
  );
}
