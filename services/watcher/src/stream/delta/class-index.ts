import { getOrMake } from "@kpng/model/collections.ts";
import { BucketDigests, bucketCount } from "@kpng/model/wire/digest.ts";
import { type Frame, packFrames } from "../../items/frames.ts";
import { digestOf, type Item, serviceSection } from "../../items/item.ts";
import { servicesByNode } from "../../items/overlay.ts";
import { diffItems } from "../../items/service-items.ts";
import { type ServiceState, serviceAt, serviceStates, sharedItemsAt } from "../../items/service-state.ts";
import { proxyNames, type ViewClass, viewClassOf } from "../../items/view-target.ts";
import { changedServices, Derived, type Steps } from "../../store/derived.ts";
import { emptySnapshot, type Snapshot } from "../../store/snapshot.ts";
import { withPauses } from "./projection.ts";

/** The items of a class whose paths have the same hash modulo {@link bucketCount}, in no particular order. */
class Bucket {
  static readonly empty = new Bucket([]);

  readonly items: readonly Item[];
  #services: Frame | undefined;
  #endpoints: Frame | undefined;

  constructor(items: readonly Item[]) {
    this.items = items;
  }

  /** Puts of the Services. */
  get services(): Frame {
    this.#services ??= Buffer.concat(this.#frames(true));
    return this.#services;
  }

  /** Puts of the endpoints, compressed unless there are only a few. */
  get endpoints(): Frame {
    if (this.#endpoints !== undefined) return this.#endpoints;
    const [plain, packed] = [this.plainEndpoints, Buffer.concat(packFrames(this.#frames(false)))];
    this.#endpoints = packed.length < plain.length ? packed : plain;
    return this.#endpoints;
  }

  /** Puts of the endpoints, for subscribers that do not understand compressed batches. */
  get plainEndpoints(): Frame {
    return Buffer.concat(this.#frames(false));
  }

  #frames(ofServices: boolean): Frame[] {
    return this.items.filter(({ section }) => (section === serviceSection) === ofServices).map(({ frame }) => frame);
  }
}

/**
 * The items that a class of nodes shares, grouped by the bucket of their path, and the digest of each bucket. The index
 * provides the buckets that a resuming node lacks (`resumeView`), and the digest of a view for its sync marker.
 *
 * An index follows the snapshots (`Derived`): a change replaces the buckets of the changed items; the other buckets
 * keep their compressed bytes. All zones share the index of a proxy name, unless the hints of some Service name zones.
 *
 * *Bound:* each index takes 16 KiB, a reference to each item, and the compressed bytes of the requested buckets. There
 * is one index for each proxy name that Services have or, with zone hints, for each combination of a proxy name and a
 * node's zone.
 */
class BucketIndex {
  static readonly empty = new BucketIndex(new BucketDigests(), 0n, new Array<Bucket>(bucketCount).fill(Bucket.empty));

  readonly digests: BucketDigests;
  /** Exclusive or of the digests of all items. */
  readonly digest: bigint;
  readonly buckets: readonly Bucket[];

  constructor(digests: BucketDigests, digest: bigint, buckets: readonly Bucket[]) {
    this.digests = digests;
    this.digest = digest;
    this.buckets = buckets;
  }
}

/** Returns the index of a class. */
export function classIndex(snapshot: Snapshot, viewClass: ViewClass): BucketIndex {
  return indexOf(snapshot, viewClass).at(snapshot);
}

function indexOf(snapshot: Snapshot, viewClass: ViewClass): Derived<BucketIndex> {
  // Without zone hints, all zones have the same items.
  const indexed = zoneHintedCount.at(snapshot) === 0 ? viewClassOf(viewClass, "") : viewClass;
  const make = () => ({
    viewClass: indexed,
    index: new Derived(BucketIndex.empty, (...args) => evolve(indexed, ...args)),
  });
  const inNewest = () => getOrMake(classes.at(classes.newest), indexed.key, make);
  return getOrMake(classes.at(snapshot), indexed.key, inNewest).index;
}

/** The indexes of all classes that were ever requested, for as long as their proxy name and zone exist. */
const classes = Derived.atOnce(
  new Map<string, { readonly viewClass: ViewClass; readonly index: Derived<BucketIndex> }>(),
  (all, _before, snapshot) => {
    const [names, zones] = [proxyNames.at(snapshot), nodeZones.at(snapshot)];
    const isUsed = ({ proxyName, zone }: ViewClass): boolean =>
      (proxyName === undefined || names.has(proxyName)) && zones.has(zone);
    const used = new Map([...all].filter(([, { viewClass }]) => isUsed(viewClass)));
    // All indexes advance together: alone, an index that nobody requests any more would retain an old snapshot. The
    // first value of an index takes long to compute, so it is left to the steps of its first subscriber.
    for (const { index } of used.values()) if (index.newest !== emptySnapshot) index.at(snapshot);
    return used;
  },
);

/**
 * Computes what all views are made of, the states of the Services and those that each node has endpoints of. The first
 * subscriber does this for all others; it takes two seconds for 50 000 Services with 20 endpoints.
 */
export function* statesWithPauses(snapshot: Snapshot): Generator<Frame, void> {
  yield* withPauses(serviceStates.steps(snapshot));
  yield* withPauses(servicesByNode.steps(snapshot));
}

/** Computes the index of a class if it does not exist yet, with pauses. */
export function* indexWithPauses(snapshot: Snapshot, viewClass: ViewClass): Generator<Frame, void> {
  yield* statesWithPauses(snapshot);
  yield* withPauses(indexOf(snapshot, viewClass).steps(snapshot));
}

/**
 * Returns the index for `snapshot`, given the index for `before`. Yields after each endpoint that it encodes, after every
 * 64 items that it indexes, and after each bucket. *Cost:* a copy of 16 KiB, and of the buckets of the changed items.
 */
function* evolve(viewClass: ViewClass, index: BucketIndex, before: Snapshot, snapshot: Snapshot): Steps<BucketIndex> {
  const digests = index.digests.copy();
  let sum = index.digest;
  const changes = new Map<number, { readonly removedPaths: Set<string>; readonly added: Item[] }>();
  const bucketChange = (item: Item) => {
    const digest = digestOf(item);
    digests.toggle(digest);
    sum ^= digest.hash;
    return getOrMake(changes, digest.bucket, () => ({ removedPaths: new Set<string>(), added: [] }));
  };
  for (const key of changedServices(before, snapshot)) {
    for (const _ of serviceAt(snapshot, key, viewClass)?.encodeEach(viewClass) ?? []) yield;
    const diff = diffItems(sharedItemsAt(before, key, viewClass), sharedItemsAt(snapshot, key, viewClass));
    // Items are removed by path, because an item with equal bytes may be a different object by now.
    for (const item of diff.removed) bucketChange(item).removedPaths.add(item.path);
    for (const [at, item] of diff.added.entries()) {
      bucketChange(item).added.push(item);
      if (at % 64 === 0) yield;
    }
  }
  if (changes.size === 0) return index;
  const buckets = [...index.buckets];
  for (const [number, { removedPaths, added }] of changes) {
    const others = (buckets[number] ?? Bucket.empty).items.filter(({ path }) => !removedPaths.has(path));
    buckets[number] = new Bucket([...others, ...added]);
    yield;
  }
  return new BucketIndex(digests, sum, buckets);
}

/**
 * Encodes the items of some Services that a class shares, with their digests, into the caches of the Services. Pauses
 * in between, because a chunk of large Services takes a tenth of a second.
 */
export function encodeWithPauses(states: Iterable<ServiceState>, viewClass: ViewClass): Generator<Frame, void> {
  function* encoded(): Iterable<unknown> {
    for (const state of states) {
      if (state.service.proxyName !== viewClass.proxyName) continue;
      for (const items of state.encodeEach(viewClass)) {
        if (viewClass.isExtended) for (const item of items) digestOf(item);
        yield;
      }
      state.sharedItems(viewClass);
    }
  }
  return withPauses(encoded());
}

/**
 * The zones of all nodes, including "" for nodes that are not in the cluster. *Cost:* one pass whenever a node changes.
 */
const nodeZones = Derived.atOnce<ReadonlySet<string>>(new Set([""]), (zones, before, { nodes }) =>
  nodes === before.nodes ? zones : new Set(["", ...[...nodes.values()].map(({ zone }) => zone)]),
);

/** Number of Services that have endpoints with zone hints. */
const zoneHintedCount = Derived.atOnce(0, (count, before, snapshot) =>
  changedServices(before, snapshot).reduce((sum, key) => {
    const [old, now] = [before, snapshot].map(
      (one) => serviceStates.at(one).get(key)?.ownEndpoints.hasZoneHints === true,
    );
    return sum + Number(now) - Number(old);
  }, count),
);
