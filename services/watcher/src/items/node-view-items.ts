import { toBinary } from "@bufbuild/protobuf";
import { NodeSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { encodeNode } from "@kpng/model/wire/node-message.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { makeViewNode } from "../view/node.ts";
import { setFrame } from "./frames.ts";
import type { Item } from "./item.ts";
import type { Order } from "./order.ts";

export const nodeSection = 0;
export const serviceSection = 1;
export const podSection = 2;
export const anonymousSection = 3;

/** KPNG's order (`store2localdiff.go:142`), with the node around it. */
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

/** What a subscriber of a node's view asked for. */
export interface NodeViewRequest {
  readonly nodeName: string;
  readonly proxyName: string;
  /** It understands our fields and honours Scopes. */
  readonly isExtended: boolean;
  /** It wants the node itself. */
  readonly wantsNode: boolean;
  /** It understands packed operations. Default false. */
  readonly takesBatches?: boolean | undefined;
}

/** Those who are told the same of every Service that has no endpoint of their own node. */
export interface ViewClass {
  /** The same for the same audience, and for no other. */
  readonly key: string;
  readonly isExtended: boolean;
  readonly proxyName: string;
  readonly zone: string;
}

export function viewClassOf({ isExtended, proxyName }: Omit<ViewClass, "key" | "zone">, zone: string): ViewClass {
  // The zone's length comes first, because a zone of a state file may hold any character.
  return { key: `${isExtended} ${zone.length} ${zone} ${proxyName}`, isExtended, proxyName, zone };
}

/** The node itself; nothing if the cluster does not know it. */
export function nodeItems(snapshot: Snapshot, nodeName: string): readonly Item[] {
  const node = makeViewNode(snapshot, nodeName);
  return node === undefined ? [] : [makeItem(nodeSection, nodeName, toBinary(NodeSchema, encodeNode(node)))];
}

/** With `isKept` false it must not be held on to; see setFrame. */
export function makeItem(section: number, path: string, bytes: Uint8Array, isKept = true): Item {
  const frame = setFrame(nodeViewOrder.sections[section] ?? 0, path, bytes, isKept);
  return { section, path, frame, digest: undefined };
}
