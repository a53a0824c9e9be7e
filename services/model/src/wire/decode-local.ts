import { fromBinary } from "@bufbuild/protobuf";
import { assertNever } from "../assert-never.ts";
import type { Position } from "../forward/position.ts";
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
import { decodePosition } from "./position-message.ts";
import { decodePortHasEndpoints, decodeService } from "./service-message.ts";
import { WireError } from "./wire-error.ts";

/**
 * A decoded operation of a node's stream. A backend receives these operations from its watcher and applies them to its
 * view.
 */
export type LocalOp =
  | { readonly kind: "reset" }
  /** Instead of reset, for a subscriber that sent digests of what it holds; see KeepOp. */
  | { readonly kind: "keep" }
  | { readonly kind: "sync"; readonly mark: SyncMark }
  | { readonly kind: "change"; readonly change: ViewChange }
  /** From a newer watcher: an unknown operation, or an item of an unknown Set. */
  | { readonly kind: "ignored" };

/** The sync marker that closes a batch; see EmptyOp. From KPNG's watcher all fields are 0, empty or undefined. */
export interface SyncMark {
  readonly revision: bigint;
  readonly instance: string;
  /** The watcher accepts acknowledgements. */
  readonly takesAcks: boolean;
  /** Minimum interval between two acknowledgements, in milliseconds; 0 if unspecified. */
  readonly ackIntervalMs: number;
  /** The watcher reads the number of batches in a request. */
  readonly takesCounts: boolean;
  /** Digest of the whole view; undefined if the watcher does not send it. */
  readonly digest: bigint | undefined;
  /** W3C traceparents of the sampled changes in the batch, newest first. */
  readonly traceparents: readonly string[];
  /** Number of nodes behind this subscriber that should record their part of each trace; see EmptyOp. */
  readonly tracedNodes: number;
  /** Trigger times of the EndpointSlices in the batch, in milliseconds since 1970. */
  readonly triggeredAtMs: readonly number[];
  /** When the revision was stored, in milliseconds since 1970 by the watcher's clock, with fractions; 0 if unknown. */
  readonly storedAtMs: number;
  /** Position of the state; undefined if the watcher does not know it. */
  readonly position: Position | undefined;
}

/** Fields of newer watchers are never used, and the protobuf library needs 50 times their size for them. */
const readOptions = { readUnknownFields: false };

/**
 * Decodes an operation. Errors: WireError for an invalid path or item. Backends call it for each operation of their
 * stream and of their saved view. Separate from the other files of this folder, which decode single items, and from
 * `applyGlobalOp`, which decodes the stream of a relay.
 */
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
      throw new WireError("packed operations that were not requested");
    case undefined:
      return { kind: "ignored" };
    default:
      return assertNever(op);
  }
}

/** Decodes the body of Sync. `apiSource` calls it too: a relay's stream has the same markers. */
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
    position: decodePosition(op.Position, op.Instance),
  };
}

function decodeAt(ref: Ref | undefined, decode: (ref: Ref) => ViewChange | undefined): LocalOp {
  if (ref === undefined) throw new WireError("an operation has no path");
  try {
    const change = decode(ref);
    return change === undefined ? { kind: "ignored" } : { kind: "change", change };
  } catch (cause) {
    throw new WireError(`the item at "${ref.Path}" cannot be decoded`, { cause });
  }
}

function decodePut(ref: Ref, bytes: Uint8Array): ViewChange | undefined {
  switch (ref.Set) {
    case SetName.ServicesSet: {
      const message = fromBinary(ServiceSchema, bytes, readOptions);
      const service = decodeService(message);
      const key = parseServicePath(ref.Path);
      if (key !== serviceKey(service))
        throw new WireError(`the Service at this path is named "${serviceKey(service)}"`);
      return { kind: "put-service", key, item: { service, portHasEndpoints: decodePortHasEndpoints(message) } };
    }
    case SetName.EndpointsSet: {
      const { service, key } = parseEndpointPath(ref.Path);
      return {
        kind: "put-endpoint",
        service,
        endpoint: decodeEndpoint(key, fromBinary(EndpointSchema, bytes, readOptions)),
      };
    }
    case SetName.NodesSet:
      return { kind: "put-node", node: decodeNode(fromBinary(NodeSchema, bytes, readOptions)) };
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
  if (!namespace || !name || rest.length > 0) throw new WireError("the path of a Service must be namespace/name");
  return `${namespace}/${name}`;
}

function parseEndpointPath(path: string): { readonly service: ServiceKey; readonly key: string } {
  const [namespace, name, key, ...rest] = path.split("/");
  if (!namespace || !name || !key || rest.length > 0) {
    throw new WireError("the path of an endpoint must be namespace/name/key");
  }
  return { service: `${namespace}/${name}`, key };
}
