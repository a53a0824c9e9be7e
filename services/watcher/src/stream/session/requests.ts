import { Code, ConnectError } from "@connectrpc/connect";
import type { GlobalWatchReq } from "@kpng/model/gen/globalv1/api_pb.ts";
import { Feature, type WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";
import { BucketDigests } from "@kpng/model/wire/item-digest.ts";
import type { NodeViewRequest } from "../../items/view-target.ts";

/** Which Services the watcher serves, by the value of their label `service.kubernetes.io/service-proxy-name`. */
export interface ProxyNames {
  /** For subscribers that name none; "" is the Services without the label. */
  readonly standard: string;
  /** The only ones that may be asked for; undefined means any. */
  readonly allowed: readonly string[] | undefined;
}

/** Returns the names that `--service-proxy-name` options ask for: the first is the default, and no others are served. */
export function proxyNamesOf(options: readonly string[]): ProxyNames {
  return { standard: options[0] ?? "", allowed: options.length === 0 ? undefined : options };
}

/** Errors: INVALID_ARGUMENT. */
export function readLocalRequest(request: WatchReq, names: ProxyNames): NodeViewRequest {
  return {
    nodeName: readNodeName(request.NodeName),
    proxyName: readProxyName(request.ServiceProxyName, names),
    isExtended: request.Features.includes(Feature.Extended),
    wantsNode: request.Features.includes(Feature.NodeItem),
    takesBatches: request.Features.includes(Feature.Batches),
  };
}

/** Most batches that one request may ask for. */
const maxCount = 1_000;

export function readCount({ Count: count }: WatchReq): number {
  return Math.min(Math.max(1, count), maxCount);
}

/** What it says was received; undefined if it does not say. */
export function readReceived({ Received: received }: WatchReq): number | undefined {
  return received === 0n ? undefined : Number(received);
}

/** What the subscriber holds already; undefined for nothing. Errors: INVALID_ARGUMENT. */
export function readHeldDigests({ HeldDigests: bytes }: WatchReq): BucketDigests | undefined {
  if (bytes.length === 0) return undefined;
  const held = BucketDigests.fromBytes(bytes);
  if (held === undefined) throw new ConnectError(`HeldDigests has ${bytes.length} bytes`, Code.InvalidArgument);
  return held;
}

export function isExtended(request: GlobalWatchReq): boolean {
  return request.Features.includes(Feature.Extended);
}

export function readNodeName(name: string): string {
  if (name.length > 253) {
    throw new ConnectError(`the node name has ${name.length} characters and the limit is 253`, Code.InvalidArgument);
  }
  return name;
}

export function readProxyName(name: string, names: ProxyNames): string {
  if (name === "") return names.standard;
  if (names.allowed !== undefined && !names.allowed.includes(name)) {
    throw new ConnectError(
      `service-proxy-name "${name}" is not served here; served: "${names.allowed.join('", "')}" (--service-proxy-name)`,
      Code.InvalidArgument,
    );
  }
  return name;
}

export function isSameRequest(a: NodeViewRequest, b: NodeViewRequest): boolean {
  return (
    a.nodeName === b.nodeName &&
    a.proxyName === b.proxyName &&
    a.isExtended === b.isExtended &&
    a.wantsNode === b.wantsNode &&
    a.takesBatches === b.takesBatches
  );
}
