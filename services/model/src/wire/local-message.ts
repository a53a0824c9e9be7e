import { create, fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { parseAddress, parseCidr } from "../address.ts";
import type { Position } from "../forward.ts";
import {
  type EmptyOp,
  type Node as NodeMessage,
  NodeSchema,
  type OpItem,
  type Position as PositionMessage,
  type PositionSchema,
  type Ref,
  ServiceSchema,
  Set as SetName,
} from "../gen/localv1/api_pb.ts";
import { assertNever } from "../narrowing.ts";
import type { ViewChange, ViewNode } from "../node-view.ts";
import { type ServiceKey, serviceKey } from "../service.ts";
import { decodeEndpoint } from "./endpoint-message.ts";
import { WireError } from "./protobuf.ts";
import { decodePortHasEndpoints, decodeServiceMessage } from "./service-message.ts";

/** A decoded operation of a node's stream. */
export type LocalOp =
  | { readonly kind: "reset" }
  /** Sent instead of `reset` to a subscriber that sent digests of its items, which also reads the buckets of KeepOp. */
  | { readonly kind: "keep" }
  | { readonly kind: "sync"; readonly mark: SyncMark }
  | { readonly kind: "change"; readonly change: ViewChange }
  /** An unknown operation, or an item of an unknown Set, from a newer watcher. */
  | { readonly kind: "ignored" };

/**
 * Sync marker that ends a batch; see EmptyOp. In a marker from KPNG's watcher, all fields are 0, empty or undefined.
 */
export interface SyncMark {
  readonly revision: bigint;
  readonly instance: string;
  /** True if the watcher accepts acknowledgements. */
  readonly takesAcks: boolean;
  /** Minimum interval between two acknowledgements, in milliseconds; 0 if unspecified. */
  readonly ackIntervalMs: number;
  /** True if the watcher reads the number of batches in a request. */
  readonly takesCounts: boolean;
  /** Digest of the whole view; undefined if the watcher does not send it. */
  readonly digest: bigint | undefined;
  /** W3C traceparents of the sampled changes in the batch, newest first. */
  readonly traceparents: readonly string[];
  /** Number of nodes behind this subscriber that should record their part of each trace; see EmptyOp. */
  readonly tracedNodes: number;
  /** Trigger times of the EndpointSlices in the batch, in milliseconds since 1970. */
  readonly triggeredAtMs: readonly number[];
  /**
   * Time at which the revision was stored, in fractional milliseconds since 1970 by the watcher's clock; 0 if unknown.
   */
  readonly storedAtMs: number;
  /** Position of the state; undefined if the watcher does not know it. */
  readonly position: Position | undefined;
}

/** Fields that only newer watchers know are dropped: the protobuf library would need 50 times their size. */
const readOptions = { readUnknownFields: false };

/** Decodes an operation of a node's stream, or of a saved view. Errors: WireError for an invalid path or item. */
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
      // Requested batches are unpacked before their operations get here.
      throw new WireError("packed operations that were not requested");
    case undefined:
      return { kind: "ignored" };
    default:
      return assertNever(op);
  }
}

/** Decodes the body of Sync from the stream of a node or relay. */
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

/** Returns the change; undefined for a Set that only a newer watcher knows. */
function decodePut(ref: Ref, bytes: Uint8Array): ViewChange | undefined {
  switch (ref.Set) {
    case SetName.ServicesSet: {
      const message = fromBinary(ServiceSchema, bytes, readOptions);
      const service = decodeServiceMessage(message);
      const key = parseServicePath(ref.Path);
      if (key !== serviceKey(service))
        throw new WireError(`the Service at this path is named "${serviceKey(service)}"`);
      return { kind: "put-service", key, item: { service, portHasEndpoints: decodePortHasEndpoints(message) } };
    }
    case SetName.EndpointsSet: {
      const { service, key } = parseEndpointPath(ref.Path);
      return { kind: "put-endpoint", service, endpoint: decodeEndpoint(key, bytes) };
    }
    case SetName.NodesSet: {
      const node = decodeNodeMessage(fromBinary(NodeSchema, bytes, readOptions));
      if (ref.Path !== node.name) throw new WireError(`the Node at this path is named "${node.name}"`);
      return { kind: "put-node", node };
    }
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
  const [namespace, name, ...others] = path.split("/");
  if (!namespace || !name || others.length > 0) throw new WireError("the path of a Service must be namespace/name");
  return `${namespace}/${name}`;
}

function parseEndpointPath(path: string): { readonly service: ServiceKey; readonly key: string } {
  const [namespace, name, key, ...others] = path.split("/");
  if (!namespace || !name || !key || others.length > 0) {
    throw new WireError("the path of an endpoint must be namespace/name/key");
  }
  return { service: `${namespace}/${name}`, key };
}

/** Creates the message for a node. */
export function encodeNode(node: ViewNode): NodeMessage {
  return create(NodeSchema, {
    Name: node.name,
    Zone: node.zone,
    Addresses: [...node.addresses],
    PodCIDRs: [...node.podCIDRs],
    Eligible: node.isEligible,
    ServiceCIDRs: [...node.serviceCIDRs],
  });
}

/** Decodes the message of a node, which is part of a node view or a NodeInfo. Errors: WireError. */
export function decodeNodeMessage(message: NodeMessage): ViewNode {
  return {
    name: message.Name,
    zone: message.Zone,
    addresses: message.Addresses.map((text) => parseAddress(text)?.address ?? fail(text, "an IP address")),
    podCIDRs: message.PodCIDRs.map((text) => parseCidr(text)?.cidr ?? fail(text, "a CIDR")),
    isEligible: message.Eligible,
    serviceCIDRs: message.ServiceCIDRs.map((text) => parseCidr(text)?.cidr ?? fail(text, "a CIDR")),
  };
}

function fail(text: string, kind: string): never {
  throw new WireError(`"${text}" is not ${kind}`);
}

/** Encodes the position in a sync marker of `instance`, without a source that is equal to the instance. */
export function encodePosition(position: Position, instance: string): MessageInitShape<typeof PositionSchema> {
  const { source, services, slices, nodes, current } = position;
  return {
    Source: source === instance ? "" : source,
    Services: services,
    Slices: slices,
    Nodes: nodes,
    CurrentServices: current.services,
    CurrentSlices: current.slices,
    CurrentNodes: current.nodes,
  };
}

/** Decodes the position in a sync marker of `instance`; undefined if there is no position or if it names no source. */
function decodePosition(message: PositionMessage | undefined, instance: string): Position | undefined {
  if (message === undefined) return undefined;
  const source = message.Source || instance;
  if (source === "") return undefined;
  const { Services: services, Slices: slices, Nodes: nodes } = message;
  // An absent Current version, which is 0, stands for the version of the last change.
  const atLeast = (version: bigint, current: bigint): bigint => (current > version ? current : version);
  return {
    source,
    services,
    slices,
    nodes,
    current: {
      services: atLeast(services, message.CurrentServices),
      slices: atLeast(slices, message.CurrentSlices),
      nodes: atLeast(nodes, message.CurrentNodes),
    },
  };
}
