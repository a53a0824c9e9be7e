import { getOrMake } from "@kpng/model/collections.ts";
import { BucketDigests, bucketCount } from "@kpng/model/wire/digest.ts";
import type { Frame } from "../../items/frames.ts";
import { digestOf, type Item, serviceSection } from "../../items/item.ts";
import { servicesByNode } from "../../items/overlay.ts";
import { diffItems } from "../../items/service-items.ts";
import { type ServiceState, serviceStates, sharedItemsAt } from "../../items/service-state.ts";
import { proxyNames, type ViewClass, viewClassOf } from "../../items/view-target.ts";
import { changedServices, Derived, SharedWork, type Steps } from "../../store/derived.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { packFrames } from "./encoded-ops.ts";
import { withPauses } from "./projection.ts";

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
  static readonly empty = new BucketIndex(new BucketDigests(), 0n, []);

  readonly digests: BucketDigests;
  /** Exclusive or of the digests of all items. */
  readonly digest: bigint;
  readonly #buckets: readonly Bucket[];

  constructor(digests: BucketDigests, digest: bigint, buckets: readonly Bucket[]) {
    this.digests = digests;
    this.digest = digest;
    this.#buckets = buckets;
  }

  bucket(number: number): Bucket {
    return this.#buckets[number] ?? Bucket.empty;
  }

  /**
   * Returns the index without `removed` and with `added`. *Cost:* a copy of 16 KiB, and of the buckets of these items.
   */
  with(removed: readonly Item[], added: readonly Item[]): BucketIndex {
    const digests = this.digests.copy();
    let sum = this.digest;
    const changes = new Map<number, { readonly removedPaths: Set<string>; readonly added: Item[] }>();
    const bucketChange = (item: Item) => {
      const digest = digestOf(item);
      digests.toggle(digest);
      sum ^= digest.hash;
      return getOrMake(changes, digest.bucket, () => ({ removedPaths: new Set<string>(), added: [] }));
    };
    // Items are removed by path, because an item with equal bytes may be a different object by now.
    for (const item of removed) bucketChange(item).removedPaths.add(item.path);
    for (const item of added) bucketChange(item).added.push(item);
    const buckets = this.#buckets.length === 0 ? new Array<Bucket>(bucketCount).fill(Bucket.empty) : [...this.#buckets];
    for (const [number, change] of changes) {
      const others = this.bucket(number).items.filter(({ path }) => !change.removedPaths.has(path));
      buckets[number] = new Bucket([...others, ...change.added]);
    }
    return new BucketIndex(digests, sum, buckets);
  }
}

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

/** Returns the index of a class. */
export function classIndex(snapshot: Snapshot, viewClass: ViewClass): BucketIndex {
  const indexed = indexedClass(snapshot, viewClass);
  const existing = indexes.at(snapshot).get(indexed.key);
  if (existing !== undefined) return existing.index;
  for (const _ of indexSteps(snapshot, indexed));
  // Whichever snapshot is newer, few Services differ from the newest index.
  const { newest } = indexes;
  return getOrMake(indexes.at(snapshot), indexed.key, () => ({
    viewClass: indexed,
    index: evolve(indexes.at(newest).get(indexed.key)?.index ?? BucketIndex.empty, indexed, newest, snapshot),
  })).index;
}

/** Returns the class whose items the index contains. Without zone hints, it is the same class for all zones. */
function indexedClass(snapshot: Snapshot, viewClass: ViewClass): ViewClass {
  return zoneHintedCount.at(snapshot) === 0 ? viewClassOf(viewClass, "") : viewClass;
}

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
  yield* withPauses(indexSteps(snapshot, indexedClass(snapshot, viewClass)));
}

/** Computes the index of a class if it does not exist yet. All callers advance the same computation. */
function* indexSteps(snapshot: Snapshot, indexed: ViewClass): Generator<void, void> {
  const { key } = indexed;
  const isMade = () => indexes.at(snapshot).has(key) || indexes.at(indexes.newest).has(key);
  while (!isMade()) {
    const work = getOrMake(builds, key, () => new SharedWork<BucketIndex>());
    const made = work.step(snapshot, () => buildIndex(snapshot, indexed));
    if (made === undefined) {
      yield;
      continue;
    }
    builds.delete(key);
    indexes.at(made.snapshot).set(key, { viewClass: indexed, index: made.value });
    // Indexes that were derived for newer snapshots in the meantime do not include this class.
    const { newest } = indexes;
    getOrMake(indexes.at(newest), key, () => ({
      viewClass: indexed,
      index: evolve(made.value, indexed, made.snapshot, newest),
    }));
  }
}

/** The indexes that are being computed, by class: at most one for each class that {@link indexes} may have. */
const builds = new Map<string, SharedWork<BucketIndex>>();

/** Returns the index of a class. Yields after each endpoint that it encodes, and after every 64 items that it indexes. */
function* buildIndex(snapshot: Snapshot, viewClass: ViewClass): Steps<BucketIndex> {
  const digests = new BucketDigests();
  let sum = 0n;
  const buckets = Array.from({ length: bucketCount }, (): Item[] => []);
  for (const state of serviceStates.at(snapshot).values()) {
    if (state.service.proxyName !== viewClass.proxyName) continue;
    for (const _ of state.encodeEach(viewClass)) yield;
    for (const [at, item] of state.sharedItems(viewClass).entries()) {
      const digest = digestOf(item);
      digests.toggle(digest);
      sum ^= digest.hash;
      buckets[digest.bucket]?.push(item);
      if (at % 64 === 0) yield;
    }
  }
  return new BucketIndex(
    digests,
    sum,
    buckets.map((items) => new Bucket(items)),
  );
}

/**
 * Encodes the items of some Services that a class shares, with their digests, into the caches of the Services. Pauses
 * in between, because a chunk of large Services takes a tenth of a second.
 */
export function encodeWithPauses(states: Iterable<ServiceState>, viewClass: ViewClass): Generator<Frame, void> {
  function* encoded(): Iterable<readonly Item[]> {
    for (const state of states) {
      if (state.service.proxyName !== viewClass.proxyName) continue;
      yield* state.encodeEach(viewClass);
      state.sharedItems(viewClass);
    }
  }
  return withPauses(encoded(), (items) => {
    if (viewClass.isExtended) for (const item of items) digestOf(item);
  });
}

/** The indexes of all classes that were ever requested, for as long as their proxy name and zone exist. */
const indexes = Derived.atOnce(
  new Map<string, { readonly viewClass: ViewClass; readonly index: BucketIndex }>(),
  (all, before, snapshot) => {
    const [names, zones] = [proxyNames.at(snapshot), nodeZones.at(snapshot)];
    const isUsed = ({ proxyName, zone }: ViewClass): boolean =>
      (proxyName === undefined || names.has(proxyName)) && zones.has(zone);
    return new Map(
      [...all]
        .filter(([, { viewClass }]) => isUsed(viewClass))
        .map(([key, { viewClass, index }]) => [key, { viewClass, index: evolve(index, viewClass, before, snapshot) }]),
    );
  },
);

function evolve(index: BucketIndex, viewClass: ViewClass, before: Snapshot, snapshot: Snapshot): BucketIndex {
  const removed: Item[] = [];
  const added: Item[] = [];
  for (const key of changedServices(before, snapshot)) {
    const diff = diffItems(sharedItemsAt(before, key, viewClass), sharedItemsAt(snapshot, key, viewClass));
    // No spread: a call takes some 120 000 arguments.
    for (const item of diff.removed) removed.push(item);
    for (const item of diff.added) added.push(item);
  }
  return removed.length + added.length === 0 ? index : index.with(removed, added);
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
