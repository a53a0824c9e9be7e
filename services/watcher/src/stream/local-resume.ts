import { fromBinary } from "@bufbuild/protobuf";
import { OpItemSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import {
  BucketDigests,
  bucketCount,
  encodeBuckets,
  type ItemDigest,
  itemDigest,
} from "@kpng/model/wire/item-digest.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { choosingNode } from "../view/node.ts";
import { diffItems } from "./diff-items.ts";
import { keepFrame, messageIn } from "./frames.ts";
import { getOrMake } from "./get-or-make.ts";
import {
  audienceOf,
  concernedNodes,
  type LocalRequest,
  localOrder,
  nodeItems,
  noSlices,
  serviceItems,
} from "./local-units.ts";
import type { Changes, Item } from "./projection.ts";

/**
 * Compares what a subscriber holds with what it should have, bucket by bucket, and puts all items of the buckets that
 * differ. It does not matter who served the subscriber before: equal items have equal bytes on every replica of a
 * version, and on a replica of another version what differs is sent again. The changes begin with Keep.
 *
 * *Cost:* for the first node of a zone at a snapshot, all items; for the others, the Services that concern the node and
 * the items of the buckets that differ.
 */
export function resumeView(snapshot: Snapshot, request: LocalRequest, held: BucketDigests): Changes {
  const node = choosingNode(snapshot, request.nodeName);
  const shared = sharedIndex(snapshot, request, node.zone);
  const digests = shared.digests.copy();
  const hidden = new Set<Item>();
  const own: Item[] = request.wantsNode ? [...nodeItems(snapshot, request.nodeName)] : [];
  const concerned = concernedServices(snapshot).get(node.name) ?? [];
  for (const item of serviceItems(snapshot, concerned, request, { name: "", zone: node.zone })) {
    hidden.add(item);
    digests.toggle(digestOf(item));
  }
  for (const item of serviceItems(snapshot, concerned, request, node)) own.push(item);
  for (const item of own) digests.toggle(digestOf(item));
  const isRight = (bucket: number): boolean => digests.isSameBucket(held, bucket);
  const wanted = own.filter((item) => !isRight(digestOf(item).bucket));
  for (const [bucket, items] of shared.itemsByBucket.entries()) {
    if (isRight(bucket)) continue;
    for (const item of items) if (!hidden.has(item)) wanted.push(item);
  }
  const opening = keepFrame(encodeBuckets(isRight));
  return { isEmpty: false, frames: () => [opening, ...diffItems([], wanted, localOrder).frames()] };
}

interface SharedIndex {
  readonly digests: BucketDigests;
  readonly itemsByBucket: readonly (readonly Item[])[];
}

const indexes = new WeakMap<Snapshot, Map<string, SharedIndex>>();

/** All items as a node that nothing concerns is told them. */
function sharedIndex(snapshot: Snapshot, request: LocalRequest, zone: string): SharedIndex {
  // There is no end of the names that subscribers can make up: only for those that a Service has is anything kept.
  if (!proxyNamesIn(snapshot).has(request.proxyName)) return makeIndex([]);
  const byAudience = getOrMake(indexes, snapshot, () => new Map<string, SharedIndex>());
  return getOrMake(byAudience, audienceOf(request, zone), () =>
    makeIndex(serviceItems(snapshot, snapshot.services.keys(), request, { name: "", zone })),
  );
}

function makeIndex(items: Iterable<Item>): SharedIndex {
  const digests = new BucketDigests();
  const itemsByBucket = Array.from({ length: bucketCount }, (): Item[] => []);
  for (const item of items) {
    const digest = digestOf(item);
    digests.toggle(digest);
    itemsByBucket[digest.bucket]?.push(item);
  }
  return { digests, itemsByBucket };
}

const proxyNames = new WeakMap<Snapshot["services"], ReadonlySet<string>>();

function proxyNamesIn({ services }: Snapshot): ReadonlySet<string> {
  return getOrMake(proxyNames, services, () => new Set([...services.values()].map(({ proxyName }) => proxyName)));
}

const servicesByNode = new WeakMap<Snapshot, ReadonlyMap<string, readonly string[]>>();

/** The Services that concern each node. */
function concernedServices(snapshot: Snapshot): ReadonlyMap<string, readonly string[]> {
  return getOrMake(servicesByNode, snapshot, () => {
    const byNode = new Map<string, string[]>();
    for (const key of snapshot.services.keys()) {
      for (const name of concernedNodes(snapshot.slicesByService.get(key) ?? noSlices)) {
        getOrMake(byNode, name, () => []).push(key);
      }
    }
    return byNode;
  });
}

const digestsOfItems = new WeakMap<Item, ItemDigest>();

function digestOf(item: Item): ItemDigest {
  return getOrMake(digestsOfItems, item, () => {
    const { Op: op } = fromBinary(OpItemSchema, messageIn(item.frame));
    const bytes = op.case === "Set" ? op.value.Bytes : new Uint8Array();
    return itemDigest(localOrder.sections[item.section] ?? 0, item.path, bytes);
  });
}
