import { readFileSync } from "node:fs";
import { zstdCompressSync } from "node:zlib";
import { create, fromJson, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  type BatchOpSchema,
  Encoding,
  EndpointSchema,
  NodeSchema,
  type OpItem,
  OpItemSchema,
  OpItemsSchema,
  ServiceSchema,
  Protocol as WireProtocol,
  Set as WireSet,
} from "@kpng/model/gen/localv1/api_pb.ts";
import type { ViewState } from "../state/view-state.ts";
import type { ViewUpdate } from "../types/sync-update.ts";

/** Applies one batch to a view. */
export function applyOps(state: ViewState, ops: readonly OpItem[]): ViewUpdate {
  for (const op of ops) state.stage(op);
  return state.commit(state.next(), { revision: 0n, instance: "" });
}

// Operations of a stream from the watcher, shared by all tests with `startFakeWatcher`, which sends them.

export const reset: OpItem = create(OpItemSchema, { Op: { case: "Reset", value: {} } });

/** Sync marker; `digest` is the digest of the view, if the watcher sends one. */
export function sync(revision = 0n, instance = "", digest?: bigint): OpItem {
  const mark = { Revision: revision, Instance: instance, ...(digest === undefined ? {} : { Digest: digest }) };
  return create(OpItemSchema, { Op: { case: "Sync", value: mark } });
}

/** Sync marker of a state at a resourceVersion of the API server, the same for all kinds. */
export function syncAt(version: bigint, digest?: bigint): OpItem {
  const Position = { Source: "kube", Services: version, Slices: version, Nodes: version };
  const mark = { Revision: version, Instance: "i", Position, ...(digest === undefined ? {} : { Digest: digest }) };
  return create(OpItemSchema, { Op: { case: "Sync", value: mark } });
}

/** A Service at `namespace/name` with one cluster IP and a port of a protocol, by default TCP. */
export function putService(path: string, clusterIP = "10.0.0.1", protocol: number = WireProtocol.TCP): OpItem {
  const [namespace = "", name = ""] = path.split("/");
  const service = create(ServiceSchema, {
    Namespace: namespace,
    Name: name,
    Type: "ClusterIP",
    IPs: { ClusterIPs: { V4: [clusterIP] } },
    Ports: [{ Protocol: protocol as WireProtocol, Port: 80 }],
  });
  return put(WireSet.ServicesSet, path, toBinary(ServiceSchema, service));
}

/** An endpoint at `namespace/name/key` with one address. */
export function putEndpoint(path: string, address = "10.1.0.1"): OpItem {
  const endpoint = create(EndpointSchema, { IPs: { V4: [address] }, Scopes: { Internal: true } });
  return put(WireSet.EndpointsSet, path, toBinary(EndpointSchema, endpoint));
}

export function putNode(name: string): OpItem {
  return put(WireSet.NodesSet, name, toBinary(NodeSchema, create(NodeSchema, { Name: name, Eligible: true })));
}

export function put(set: WireSet, path: string, bytes: Uint8Array): OpItem {
  return create(OpItemSchema, { Op: { case: "Set", value: { Ref: { Set: set, Path: path }, Bytes: bytes } } });
}

/** The operations as one compressed message (OpItem.Batch); `fields` replaces fields of the message. */
export function pack(ops: readonly OpItem[], fields: MessageInitShape<typeof BatchOpSchema> = {}): OpItem {
  const bytes = toBinary(OpItemsSchema, create(OpItemsSchema, { Items: [...ops] }));
  const value = { Encoding: Encoding.Zstd, Items: zstdCompressSync(bytes), Size: bytes.length, ...fields };
  return create(OpItemSchema, { Op: { case: "Batch", value } });
}

export function deleteService(path: string): OpItem {
  return create(OpItemSchema, { Op: { case: "Delete", value: { Set: WireSet.ServicesSet, Path: path } } });
}

export function deleteEndpoint(path: string): OpItem {
  return create(OpItemSchema, { Op: { case: "Delete", value: { Set: WireSet.EndpointsSet, Path: path } } });
}

/** Returns the recorded stream of a Go watcher for its test input, up to the first sync marker. */
export function readCapture(name: "local-n1" | "local-nX"): readonly OpItem[] {
  const lines = readFileSync(new URL(`../../../../test/fixtures/kpng/${name}.jsonl`, import.meta.url), "utf8")
    .trim()
    .split("\n");
  return lines.map((line) => fromJson(OpItemSchema, JSON.parse(line)));
}
