import { fromBinary } from "@bufbuild/protobuf";
import { assertNever } from "../assert-never.ts";
import {
  type EmptyOp,
  EndpointSchema,
  NodeSchema,
  type OpItem,
  type Ref,
  ServiceSchema,
  Set as SetName,
} from "../gen/localv1/api_pb.ts";
import type { ViewChange } from "../node-view.ts";
import { type ServiceKey, serviceKey } from "../service.ts";
import { decodeEndpoint } from "./endpoint-message.ts";
import { decodeNode } from "./node-message.ts";
import { decodePortHasEndpoints, decodeService } from "./service-message.ts";
import { WireError } from "./wire-error.ts";

/** One operation of a node's stream in our words. */
export type LocalOp =
  | { readonly kind: "reset" }
  /** In place of reset, for a subscriber that said what it holds; see KeepOp. */
  | { readonly kind: "keep" }
  | { readonly kind: "sync"; readonly mark: SyncMark }
  | { readonly kind: "change"; readonly change: ViewChange }
  /** An item of a Set that we do not know: a newer watcher's. */
  | { readonly kind: "ignored" };

/** What closes a batch; see EmptyOp. From a Go watcher all of it is 0, empty or absent. */
export interface SyncMark {
  readonly revision: bigint;
  readonly instance: string;
  readonly takesAcks: boolean;
  /** Shortest time between two acknowledgements, in milliseconds; 0 if it does not say. */
  readonly ackIntervalMs: number;
  /** It reads how many batches a request asks for. */
  readonly takesCounts: boolean;
  /** Of the whole view; undefined if the watcher does not know it. */
  readonly digest: bigint | undefined;
  /** W3C traceparents, the newest first. */
  readonly traceparents: readonly string[];
  /** How many nodes behind this subscriber are to record their part of each trace. */
  readonly tracedNodes: number;
  /** Milliseconds since 1970. */
  readonly triggeredAtMs: readonly number[];
  /** Milliseconds since 1970 by the watcher's clock, with fractions; 0 if not known. */
  readonly storedAtMs: number;
}

/** Errors: WireError for a path of another shape or bytes that are no such message. */
export function decodeLocalOp({ Op: op }: OpItem): LocalOp {
  switch (op.case) {
    case "Reset":
      return { kind: "reset" };
    case "Keep":
      return { kind: "keep" };
    case "Sync":
      return { kind: "sync", mark: decodeMark(op.value) };
    case "Set":
      return decodeAt(op.value.Ref, (ref) => decodePut(ref, op.value.Bytes));
    case "Delete":
      return decodeAt(op.value, decodeDelete);
    case "Batch":
      throw new WireError("packed operations, which were not asked for");
    case undefined:
      return { kind: "ignored" };
    default:
      return assertNever(op);
  }
}

/** The body of Sync. */
export function decodeMark(op: EmptyOp): SyncMark {
  return {
    revision: op.Revision,
    instance: op.Instance,
    takesAcks: op.TakesAcks,
    ackIntervalMs: op.AckIntervalMs,
    takesCounts: op.TakesCounts,
    digest: op.Digest,
    traceparents: op.Traceparents,
    tracedNodes: op.TracedNodes,
    triggeredAtMs: op.TriggeredAtMs.map(Number),
    storedAtMs: Number(op.StoredAtMicros) / 1_000,
  };
}

function decodeAt(ref: Ref | undefined, decode: (ref: Ref) => ViewChange | undefined): LocalOp {
  if (ref === undefined) throw new WireError("an operation has no path");
  try {
    const change = decode(ref);
    return change === undefined ? { kind: "ignored" } : { kind: "change", change };
  } catch (cause) {
    throw new WireError(`the item at "${ref.Path}" cannot be understood`, { cause });
  }
}

function decodePut(ref: Ref, bytes: Uint8Array): ViewChange | undefined {
  switch (ref.Set) {
    case SetName.ServicesSet: {
      const message = fromBinary(ServiceSchema, bytes);
      const service = decodeService(message);
      const key = parseServicePath(ref.Path);
      if (key !== serviceKey(service)) throw new WireError(`the Service there calls itself "${serviceKey(service)}"`);
      return { kind: "put-service", key, item: { service, portHasEndpoints: decodePortHasEndpoints(message) } };
    }
    case SetName.EndpointsSet: {
      const { service, key } = parseEndpointPath(ref.Path);
      return { kind: "put-endpoint", service, endpoint: decodeEndpoint(key, fromBinary(EndpointSchema, bytes)) };
    }
    case SetName.NodesSet:
      return { kind: "put-node", node: decodeNode(fromBinary(NodeSchema, bytes)) };
    default:
      return undefined;
  }
}

function decodeDelete(ref: Ref): ViewChange | undefined {
  switch (ref.Set) {
    case SetName.ServicesSet:
      return { kind: "delete-service", key: parseServicePath(ref.Path) };
    case SetName.EndpointsSet:
      return { kind: "delete-endpoint", ...parseEndpointPath(ref.Path) };
    case SetName.NodesSet:
      return { kind: "delete-node" };
    default:
      return undefined;
  }
}

function parseServicePath(path: string): ServiceKey {
  const [namespace, name, ...rest] = path.split("/");
  if (!namespace || !name || rest.length > 0) throw new WireError("the path of a Service is namespace/name");
  return `${namespace}/${name}`;
}

function parseEndpointPath(path: string): { readonly service: ServiceKey; readonly key: string } {
  const [namespace, name, key, ...rest] = path.split("/");
  if (!namespace || !name || !key || rest.length > 0) {
    throw new WireError("the path of an endpoint is namespace/name/key");
  }
  return { service: `${namespace}/${name}`, key };
}
