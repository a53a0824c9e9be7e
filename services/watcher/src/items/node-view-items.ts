import { toBinary } from "@bufbuild/protobuf";
import { NodeSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { encodeNode } from "@kpng/model/wire/node-message.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { makeViewNode } from "../view/node.ts";
import { setFrame } from "./frames.ts";
import type { Item, Order } from "./item.ts";

// A section of a node view is a group of items that are sent together: an index into `nodeViewOrder.sections`.

/** Section of the node itself. */
export const nodeSection = 0;
/** Section of Services. */
export const serviceSection = 1;
/** Section of endpoints with a pod. */
export const podSection = 2;
/** Section of endpoints without a pod. */
export const anonymousSection = 3;

/**
 * The order of operations in a node view: KPNG's (`store2localdiff.go:142`), with the node first when it is put and
 * last when it is deleted. A node view is everything that one node must know.
 *
 * `stream/delta` sends changes in this order. Separate from `item.ts`, because relays receive items of other sections
 * in another order (`globalProjection`).
 */
export const nodeViewOrder: Order = {
  sections: [SetName.NodesSet, SetName.ServicesSet, SetName.EndpointsSet, SetName.EndpointsSet],
  phases: [
    { kind: "put", section: nodeSection },
    { kind: "put", section: serviceSection },
    { kind: "delete", section: anonymousSection },
    { kind: "put", section: podSection },
    { kind: "delete", section: podSection },
    { kind: "put", section: anonymousSection },
    { kind: "delete", section: serviceSection },
    { kind: "delete", section: nodeSection },
  ],
};

/** Returns the item of the node itself; an empty list for a node that is not in the cluster. */
export function nodeItems(snapshot: Snapshot, nodeName: string): readonly Item[] {
  const node = makeViewNode(snapshot, nodeName);
  return node === undefined ? [] : [makeItem(nodeSection, nodeName, toBinary(NodeSchema, encodeNode(node)))];
}

/**
 * Returns an item of a node view with its encoded frame. With `isKept` false, the caller must not keep the item: its
 * frame shares a buffer that is reused; see setFrame.
 */
export function makeItem(section: number, path: string, bytes: Uint8Array, isKept = true): Item {
  const frame = setFrame(nodeViewOrder.sections[section] ?? 0, path, bytes, isKept);
  return { section, path, frame, digest: undefined };
}
