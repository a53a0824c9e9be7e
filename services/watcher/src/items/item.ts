import { toBinary } from "@bufbuild/protobuf";
import { NodeSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { type ItemDigest, itemDigest } from "@kpng/model/wire/digest.ts";
import { encodeNode } from "@kpng/model/wire/local-message.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { makeViewNode } from "../view/service-view.ts";
import { deleteFrame, type Frame, setFrame, valueIn } from "./frames.ts";

/** One object of a view as streams carry it: an encoded Service, endpoint or node. */
export interface Item {
  /** Index into {@link Order.sections}. */
  readonly section: number;
  /** Key within the section. *Shape:* `default/web`; for an endpoint, `default/web/` followed by its key. */
  readonly path: string;
  /** The Set operation for the item. Two items with the same path are equal if their frames are equal. */
  readonly frame: Frame;
  /** Cached by {@link digestOf}. */
  digest?: ItemDigest | undefined;
}

export interface Order {
  /** The set of each section in KPNG's protocol, by index. Two sections may have the same set. */
  readonly sections: readonly SetName[];
  /** The order of the operations in a batch: all puts, or all deletes, of one section after another. */
  readonly phases: readonly Phase[];
}

interface Phase {
  readonly kind: "put" | "delete";
  readonly section: number;
}

// Sections of a node view: the node, Services, endpoints with a pod, and endpoints without one.
export const nodeSection = 0;
export const serviceSection = 1;
export const podSection = 2;
export const anonymousSection = 3;

/**
 * Order of operations in a node view. It is KPNG's order (`store2localdiff.go:142`) plus the node, which comes first
 * when it is put and last when it is deleted. Relays receive other sections, in another order (`globalProjection`).
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

function setOf(section: number): SetName {
  return nodeViewOrder.sections[section] ?? SetName.UnknownSet;
}

/** Returns the item of the node itself, in a list that is empty if the cluster has no such node. */
export function nodeItems(snapshot: Snapshot, nodeName: string): readonly Item[] {
  const node = makeViewNode(snapshot, nodeName);
  return node === undefined ? [] : [makeItem(nodeSection, nodeName, toBinary(NodeSchema, encodeNode(node)))];
}

/** Returns an item of a node view. */
export function makeItem(section: number, path: string, bytes: Uint8Array): Item {
  return { section, path, frame: setFrame(setOf(section), path, bytes), digest: undefined };
}

/** Returns the operation that deletes an item of a node view. */
export function deleteFrameOf({ section, path }: Item): Frame {
  return deleteFrame(setOf(section), path);
}

/** Returns the digest of an item of a node view, and caches it in the item. */
export function digestOf(item: Item): ItemDigest {
  const { section, path, frame } = item;
  item.digest ??= itemDigest(setOf(section), path, valueIn(frame));
  return item.digest;
}

/**
 * Adds items to the digest of a set of items, or removes them. Both are the same operation, because the digest is an
 * exclusive or.
 */
export function toggleDigests(digest: bigint, items: readonly Item[]): bigint {
  return items.reduce((sum, item) => sum ^ digestOf(item).hash, digest);
}
