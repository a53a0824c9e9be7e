import type { ByteText } from "@kpng/model/byte-text.ts";
import { type OpItem, type Ref, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import type { NodeView, ServiceItem, ServiceView, ViewChange, ViewEndpoint, ViewNode } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { BucketDigests, hasBucket, type ItemDigest, itemBucket, itemDigest } from "@kpng/model/wire/digest.ts";
import { decodeLocalOp, type LocalOp } from "@kpng/model/wire/local-message.ts";
import { BackendError } from "../types/backend-error.ts";
import type { ViewUpdate } from "../types/sync-update.ts";
import { itemBytes } from "./item-limits.ts";
import { PackedEndpoints } from "./packed-endpoints.ts";
import { SortedMap } from "./sorted-map.ts";

/** What is known of an item that is not kept as it came: enough to take it out of the digests again. */
interface ItemRecord extends ItemDigest {
  /** Estimated memory; see `itemBytes`. */
  readonly bytes: number;
}

/** A Service of the view. Its endpoints are kept as the watcher sent them, and decoded whenever they are read. */
class HeldService implements ServiceView {
  readonly service: ServiceItem["service"];
  readonly portHasEndpoints: ServiceItem["portHasEndpoints"];
  declare readonly endpoints: readonly ViewEndpoint[];
  readonly #record: ItemRecord;
  readonly #packed: PackedEndpoints;

  constructor({ service, portHasEndpoints }: ServiceItem, record: ItemRecord, packed: PackedEndpoints) {
    this.service = service;
    this.portHasEndpoints = portHasEndpoints;
    // A property of its own, so that a copy by spread and JSON contain the endpoints.
    Object.defineProperty(this, "endpoints", decodedEndpoints);
    this.#record = record;
    this.#packed = packed;
  }

  get record(): ItemRecord {
    return this.#record;
  }

  get packed(): PackedEndpoints {
    return this.#packed;
  }
}

const decodedEndpoints = {
  enumerable: true,
  get(this: HeldService): readonly ViewEndpoint[] {
    return this.packed.decode();
  },
};

/** Any other item: the node, and items of a Set that only a newer watcher knows. */
interface OtherItem extends ItemRecord {
  readonly set: SetName;
  readonly path: string;
}

interface ReceivedView extends NodeView {
  readonly services: SortedMap<ServiceKey, HeldService>;
  readonly endpointCount: number;
}

/** A view with everything that tells the watcher what this node has. Immutable. */
interface HeldView {
  readonly view: ReceivedView;
  /** Keyed by {@link otherKey}. */
  readonly others: ReadonlyMap<string, OtherItem>;
  readonly digests: BucketDigests;
  /** Exclusive or of the hashes of all items, as specified for EmptyOp.Digest in the proto file. */
  readonly digest: bigint;
  readonly bytes: number;
}

/** The view after a batch that is not committed yet. */
export interface NextView extends Pick<ViewUpdate, "touched" | "counts"> {
  readonly held: HeldView;
  /** True if the batch began with Reset. */
  readonly isReset: boolean;
  /** True if the batch continues the view before, and no item differs. */
  readonly isUnchanged: boolean;
}

/**
 * Holds the view of a node across reconnections; the view is changed only here.
 *
 * The operations of a batch are staged, and the view is replaced only if the whole batch is valid: a stream that breaks
 * inside a batch changes nothing. *Touched* Services are determined once, here; the set travels with the view to the
 * sync loop, the planner and the rule sets. A whole view (a batch with Reset) is compared with the previous view, so that
 * only Services that really differ are touched.
 *
 * The digests of the items (Services, endpoints and nodes) are kept with the view. A new stream starts with them
 * (`WatchReq.HeldDigests`), so that the watcher sends only the items that differ.
 */
export class ViewState {
  #held: HeldView;
  #staged: StagedView | undefined;
  #isFirst = true;
  /** True if the next stream must bring the whole view. */
  #isDoubtful = true;

  constructor(nodeName: string) {
    this.#held = emptyView(nodeName);
  }

  /** Empty before the first batch. */
  get view(): NodeView {
    return this.#held.view;
  }

  /** Digests of all buckets for the first request of a stream; undefined to ask for the whole view, or without items. */
  get buckets(): Uint8Array | undefined {
    return this.#isDoubtful || this.#held.bytes === 0 ? undefined : this.#held.digests.toBytes();
  }

  /** Makes the next stream bring the whole view: what is held may differ from what the watcher has sent. */
  doubt(): void {
    this.#isDoubtful = true;
  }

  discard(): void {
    this.#staged = undefined;
  }

  /**
   * Adds an operation to the current batch. `decoded` is what `decodeLocalOp` returns for it. Deleting an unknown item
   * has no effect.
   *
   * Errors: BAD_STREAM for an endpoint whose Service is unknown, and for a different node.
   */
  stage(op: OpItem, decoded: LocalOp = decodeLocalOp(op)): void {
    if (decoded.kind === "reset") this.#staged = new StagedView(emptyView(this.#held.view.nodeName), true);
    else if (decoded.kind !== "sync") {
      this.#staged ??= new StagedView(this.#held, false);
      this.#staged.apply(op, decoded);
    }
  }

  /** Returns the view after the staged batch, for {@link commit}. O(endpoints of the Services in the batch). */
  next(): NextView {
    return (this.#staged ?? new StagedView(this.#held, false)).finish(this.#held);
  }

  commit(next: NextView, mark: Pick<ViewUpdate, "revision" | "instance" | "arrival">): ViewUpdate {
    const { held, touched, counts, isReset } = next;
    const update = { view: held.view, touched, counts, isFirst: this.#isFirst, ...mark };
    this.#held = held;
    this.#isFirst = false;
    if (isReset) this.#isDoubtful = false;
    this.discard();
    return update;
  }
}

function emptyView(nodeName: string): HeldView {
  return {
    view: { nodeName, node: undefined, services: new SortedMap<ServiceKey, HeldService>(), endpointCount: 0 },
    others: new Map(),
    digests: new BucketDigests(),
    digest: 0n,
    bytes: 0,
  };
}

function recordOf(set: SetName, path: string, bytes: Uint8Array): ItemRecord {
  return { ...itemDigest(set, path, bytes), bytes: itemBytes(set, path, bytes.length) };
}

function otherKey(set: SetName, path: string): string {
  return `${set} ${path}`;
}

interface StagedService {
  item: ServiceItem;
  record: ItemRecord;
  packed: PackedEndpoints;
  /** Changed endpoints that are not packed yet. */
  readonly changes: Map<string, ByteText | undefined>;
  /** True if Keep does not name its bucket: it is deleted unless the batch puts it again. */
  isDropped: boolean;
}

/** Number of changed endpoints that are packed together; until then, they take ten times as much memory. */
const endpointsPerPacking = 4_096;

class StagedView {
  readonly #base: HeldView;
  readonly #isReset: boolean;
  /** Changed Services; undefined for a deleted Service. */
  readonly #services = new Map<ServiceKey, StagedService | undefined>();
  /** Services with changes that are not packed yet. */
  readonly #unpacked = new Set<StagedService>();
  #unpackedCount = 0;
  readonly #others: Map<string, OtherItem>;
  #node: ViewNode | undefined;

  constructor(base: HeldView, isReset: boolean) {
    this.#base = base;
    this.#isReset = isReset;
    this.#others = new Map(base.others);
    this.#node = base.view.node;
  }

  apply({ Op: op }: OpItem, decoded: LocalOp): void {
    const change = decoded.kind === "change" ? decoded.change : undefined;
    if (op.case === "Keep") this.#keep(op.value.Buckets);
    else if (op.case === "Set" && op.value.Ref !== undefined) this.#put(op.value.Ref, op.value.Bytes, change);
    else if (op.case === "Delete") this.#delete(op.value, change);
  }

  /** `change` is undefined for an item of a Set that only a newer watcher knows. */
  #put({ Set: set, Path: path }: Ref, bytes: Uint8Array, change: ViewChange | undefined): void {
    if (change?.kind === "put-service") {
      const put = { item: change.item, record: recordOf(set, path, bytes), isDropped: false };
      const staged = this.#stage(change.key);
      if (staged !== undefined) Object.assign(staged, put);
      else this.#services.set(change.key, { ...put, packed: PackedEndpoints.none, changes: new Map() });
    } else if (change?.kind === "put-endpoint") {
      const { service, endpoint } = change;
      const staged = this.#stage(service);
      if (staged === undefined) {
        const text = `the watcher sent endpoint ${endpoint.key} of ${service}, a Service that it has not sent`;
        throw new BackendError("BAD_STREAM", text);
      }
      const message = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
      this.#change(staged, endpoint.key, message);
    } else {
      if (change?.kind === "put-node") this.#putNode(change.node);
      this.#others.set(otherKey(set, path), { set, path, ...recordOf(set, path, bytes) });
    }
  }

  #putNode(node: ViewNode): void {
    // Without this check, the addresses of another node would decide which endpoints and node ports belong to this node.
    if (node.name !== this.#base.view.nodeName) {
      const text = `the watcher sent Node "${node.name}" to node "${this.#base.view.nodeName}"`;
      throw new BackendError("BAD_STREAM", text);
    }
    this.#node = node;
  }

  #delete({ Set: set, Path: path }: Ref, change: ViewChange | undefined): void {
    if (change?.kind === "delete-service") this.#services.set(change.key, undefined);
    else if (change?.kind === "delete-endpoint") {
      const staged = this.#stage(change.service);
      if (staged !== undefined) this.#change(staged, change.key, undefined);
    } else {
      if (change?.kind === "delete-node") this.#node = undefined;
      this.#others.delete(otherKey(set, path));
    }
  }

  /** Removes all items outside the buckets, before the batch puts some of them again. */
  #keep(buckets: Uint8Array): void {
    const isLost = (set: SetName, path: string): boolean => !hasBucket(buckets, itemBucket(set, path));
    for (const [key, service] of this.#base.view.services) {
      const lost = service.packed.keys().filter((name) => isLost(SetName.EndpointsSet, `${key}/${name}`));
      const isDropped = isLost(SetName.ServicesSet, key);
      if (lost.length === 0 && !isDropped) continue;
      const packed = service.packed.with(new Map(lost.map((name) => [name, undefined])));
      this.#services.set(key, { item: service, record: service.record, packed, changes: new Map(), isDropped });
    }
    for (const [key, { set, path }] of this.#others) {
      if (!isLost(set, path)) continue;
      this.#others.delete(key);
      if (set === SetName.NodesSet) this.#node = undefined;
    }
  }

  #stage(key: ServiceKey): StagedService | undefined {
    if (this.#services.has(key)) return this.#services.get(key);
    const base = this.#base.view.services.get(key);
    if (base === undefined) return undefined;
    const { record, packed } = base;
    const staged = { item: base, record, packed, changes: new Map(), isDropped: false };
    this.#services.set(key, staged);
    return staged;
  }

  #change(service: StagedService, key: string, message: ByteText | undefined): void {
    service.changes.set(key, message);
    this.#unpacked.add(service);
    if (++this.#unpackedCount % endpointsPerPacking === 0) this.#pack();
  }

  #pack(): void {
    for (const service of this.#unpacked) {
      service.packed = service.packed.with(service.changes);
      service.changes.clear();
    }
    this.#unpacked.clear();
  }

  /** Returns the resulting view and its differences from `before`. Parts that are equal in both stay the same objects. */
  finish(before: HeldView): NextView {
    this.#pack();
    const { nodeName, node, services } = before.view;
    const difference = new Difference(before);
    const changed = new Map<ServiceKey, HeldService | undefined>();
    const compare = (key: ServiceKey, staged: StagedService | undefined): void => {
      const old = services.get(key);
      const isKept = staged !== undefined && !staged.isDropped;
      const after = isKept ? new HeldService(staged.item, staged.record, staged.packed) : undefined;
      if (difference.addService(key, old, after)) changed.set(key, after);
    };
    for (const [key, staged] of this.#services) compare(key, staged);
    if (this.#isReset) for (const key of services.keys()) if (!this.#services.has(key)) compare(key, undefined);
    for (const [key, item] of before.others) difference.add(item, this.#others.get(key));
    for (const [key, item] of this.#others) if (!before.others.has(key)) difference.add(undefined, item);
    const nodeKey = otherKey(SetName.NodesSet, nodeName);
    const isSameNode = before.others.get(nodeKey)?.hash === this.#others.get(nodeKey)?.hash;
    const held = {
      view: {
        nodeName,
        node: isSameNode ? node : this.#node,
        services: changed.size === 0 ? services : services.with(changed),
        endpointCount: difference.endpointCount,
      },
      others: this.#others,
      digests: difference.digests,
      digest: difference.digest,
      bytes: difference.bytes,
    };
    const { counts, isEmpty } = difference;
    const isUnchanged = isEmpty && !this.#isReset;
    return { held, touched: new Set(changed.keys()), counts, isReset: this.#isReset, isUnchanged };
  }
}

/** The difference between two views, and the digests and sums of the second one. */
class Difference {
  endpointCount: number;
  readonly digests: BucketDigests;
  digest: bigint;
  bytes: number;
  readonly counts = { services: 0, endpoints: 0 };
  isEmpty = true;

  constructor({ view, digests, digest, bytes }: HeldView) {
    this.endpointCount = view.endpointCount;
    this.digests = digests.copy();
    this.digest = digest;
    this.bytes = bytes;
  }

  /** Returns whether the Service differs. */
  addService(key: ServiceKey, before: HeldService | undefined, after: HeldService | undefined): boolean {
    const isItemChanged = this.add(before?.record, after?.record);
    if (isItemChanged) this.counts.services++;
    const none = PackedEndpoints.none;
    const differences = (after?.packed ?? none).differencesFrom(before?.packed ?? none);
    for (const one of differences) {
      const recordAt = (message: Uint8Array | undefined): ItemRecord | undefined =>
        message && recordOf(SetName.EndpointsSet, `${key}/${one.key}`, message);
      this.add(recordAt(one.before), recordAt(one.after));
      this.endpointCount += Number(one.after !== undefined) - Number(one.before !== undefined);
    }
    this.counts.endpoints += differences.length;
    return isItemChanged || differences.length > 0;
  }

  /** Returns whether the item differs. */
  add(before: ItemRecord | undefined, after: ItemRecord | undefined): boolean {
    if (before?.hash === after?.hash) return false;
    this.isEmpty = false;
    for (const item of [before, after]) {
      if (item === undefined) continue;
      this.digests.toggle(item);
      this.digest ^= item.hash;
    }
    this.bytes += (after?.bytes ?? 0) - (before?.bytes ?? 0);
    return true;
  }
}
