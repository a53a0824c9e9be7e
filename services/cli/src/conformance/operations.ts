import { zstdCompressSync } from "node:zlib";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  type EmptyOpSchema,
  Encoding,
  EndpointSchema,
  type OpItem,
  OpItemSchema,
  OpItemsSchema,
  Protocol,
  ServiceSchema,
  Set as SetName,
} from "@kpng/model/gen/localv1/api_pb.ts";
import type { AppliedState } from "./tested-backend.ts";

// The operations that conformance cases send. A state is written as a backend reports it: the addresses of the
// endpoints of each Service.

/** Fields of a sync marker. */
export type SyncFields = MessageInitShape<typeof EmptyOpSchema>;

export const reset: OpItem = create(OpItemSchema, { Op: { case: "Reset", value: {} } });

/** The sync marker; `fields` are for backends that asked for the feature Extended. */
export function sync(fields: SyncFields = {}): OpItem {
  return create(OpItemSchema, { Op: { case: "Sync", value: fields } });
}

/** The operations that make a state from nothing: Services before endpoints, each ascending. */
export function putsOf(state: AppliedState): readonly OpItem[] {
  const names = Object.keys(state).sort();
  return [
    ...names.map((name, at) => putService(name, `10.96.1.${at + 1}`)),
    ...names.flatMap((name) => (state[name] ?? []).map((address) => putEndpoint(name, address))),
  ];
}

/** `unknown` is a field that no version of the protocol has. */
export function putService(name: string, clusterIP: string, unknown?: Uint8Array): OpItem {
  const [namespace, service] = name.split("/");
  const message = create(ServiceSchema, {
    Namespace: namespace ?? "",
    Name: service ?? "",
    Type: "ClusterIP",
    IPs: { ClusterIPs: { V4: [clusterIP] } },
    Ports: [{ Name: "http", Protocol: Protocol.TCP, Port: 80, TargetPort: 8080, HasEndpoints: { V4: true } }],
  });
  return put(SetName.ServicesSet, name, Buffer.concat([toBinary(ServiceSchema, message), unknown ?? Buffer.alloc(0)]));
}

/** The endpoint with one address; its key follows from the address unless `key` is given. */
export function putEndpoint(service: string, address: string, key = keyOf(address)): OpItem {
  const addresses = address.includes(":") ? { V6: [address] } : { V4: [address] };
  const message = create(EndpointSchema, {
    IPs: addresses,
    FirstIPs: addresses,
    PortOverrides: [{ Name: "http", Port: 8080, Protocol: Protocol.TCP }],
    Scopes: { Internal: true, External: true },
    Use: { Cluster: true, Ready: true, Serving: true },
  });
  return put(SetName.EndpointsSet, `${service}/${key}`, toBinary(EndpointSchema, message));
}

export function put(set: SetName, path: string, bytes: Uint8Array): OpItem {
  return create(OpItemSchema, { Op: { case: "Set", value: { Ref: { Set: set, Path: path }, Bytes: bytes } } });
}

export function deleteService(name: string): OpItem {
  return remove(SetName.ServicesSet, name);
}

export function deleteEndpoint(service: string, address: string): OpItem {
  return remove(SetName.EndpointsSet, `${service}/${keyOf(address)}`);
}

function remove(set: SetName, path: string): OpItem {
  return create(OpItemSchema, { Op: { case: "Delete", value: { Set: set, Path: path } } });
}

/** Packs operations into one compressed operation. */
export function pack(operations: readonly OpItem[]): OpItem {
  const bytes = toBinary(OpItemsSchema, create(OpItemsSchema, { Items: [...operations] }));
  const value = { Encoding: Encoding.Zstd, Items: zstdCompressSync(bytes), Size: bytes.length };
  return create(OpItemSchema, { Op: { case: "Batch", value } });
}

/** An operation with a kind that no version of the protocol has. */
export function unknownOperation(): OpItem {
  const operation = create(OpItemSchema, {});
  operation.$unknown = [{ no: 999, wireType: 2, data: Buffer.from([1, 42]) }];
  return operation;
}

/** An unknown field in encoded form: number 2000, with the varint 1. */
export const unknownField = Buffer.from([0x80, 0x7d, 0x01]);

function keyOf(address: string): string {
  return `pod-${address.replaceAll(/[.:]+/g, "-")}`;
}
