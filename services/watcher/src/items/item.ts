import { toBinary } from "@bufbuild/protobuf";
import { NodeSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { type ItemDigest, itemDigest } from "@kpng/model/wire/digest.ts";
import { encodeNode } from "@kpng/model/wire/local-message.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { makeViewNode } from "../view/service-view.ts";
import { type Frame, setFrame, valueIn } from "./frames.ts";

/**
 * One object of a view as a stream carries it: a Service, an endpoint or a node, encoded once for all subscribers that
 * need it. `stream/delta` compares and sends items.
 */
export interface Item {
  /** Index into {@link Order.sections}. */
  readonly section: number;
  /** Key within the section. *Shape:* `default/web`, and for an endpoint `default/web/` with its hash. */
  readonly path: string;
  /** The Set operation for the item. Two items with the same path are equal if these bytes are. */
  readonly frame: Frame;
  /** Cache of `digestOf`; undefined until it was called for this item. */
  digest?: ItemDigest | undefined;
}

/** The order of operations in a batch: a list of phases, each with the puts or the deletes of one section. */
export interface Order {
  /** The set of each section in KPNG's protocol, by index. Two sections may have the same set. */
  readonly sections: readonly SetName[];
  readonly phases: readonly Phase[];
}

/** A part of a batch: the puts, or the deletes, of one section. */
export interface Phase {
  readonly kind: "put" | "delete";
  readonly section: number;
}

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
 * last when it is deleted. Relays receive other sections, in another order (`globalProjection`).
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

/**
 * Returns the digest of an item of a node view, and caches it in the item. A subscriber that resumes sends digests of
 * its items, and a sync marker contains the digest of the view.
 */
export function digestOf(item: Item): ItemDigest {
  item.digest ??= uncachedDigestOf(item);
  return item.digest;
}

/** Same as {@link digestOf}, without the cache: for an item that is used once. */
export function uncachedDigestOf({ section, path, frame }: Item): ItemDigest {
  return itemDigest(nodeViewOrder.sections[section] ?? 0, path, valueIn(frame));
}

/** Returns the exclusive or of `digest` and the digests of the items: adds items to the digest, or removes them. */
export function toggleDigests(digest: bigint, items: readonly Item[], digestOfItem = digestOf): bigint {
  return items.reduce((sum, item) => sum ^ digestOfItem(item).hash, digest);
}
