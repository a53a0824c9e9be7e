import { compareText } from "@kpng/model/collections.ts";
import type { BucketDigests } from "@kpng/model/wire/digest.ts";
import { deleteFrame, type Frame } from "../../items/frames.ts";
import type { Item, Order } from "../../items/item.ts";
import { deletedItems, diffItems } from "../../items/service-items.ts";
import type { Snapshot } from "../../store/snapshot.ts";

/**
 * How a stream turns snapshots into operations: into a whole view, or into the changes from one state to another.
 * `nodeProjection` makes the view of a node, `globalProjection` the whole state for a relay.
 */
export interface Projection {
  /** The whole view of a snapshot, as puts. */
  whole(snapshot: Snapshot): Changes;
  /** The changes from one snapshot to another. */
  between(before: Snapshot, snapshot: Snapshot): Changes;
  /**
   * The changes that lead from a held view, known by its digests, to the view of a snapshot. Undefined for a view
   * without digests.
   */
  resume?(snapshot: Snapshot, held: BucketDigests): Changes;
  /**
   * The exclusive or of the digests of all items of a snapshot; see EmptyOp.Digest. Computed from the snapshot, not
   * from the operations that were sent. Undefined for a view without digests.
   *
   * *Cost:* the items that changed since the last call.
   */
  digest?(snapshot: Snapshot): bigint;
  readonly layout: Layout;
  /** The keys of all objects with items in a section. */
  keys(snapshot: Snapshot, section: number): Iterable<string>;
  /** The items of an object in a section, ascending by path. */
  items(snapshot: Snapshot, section: number, key: string): readonly Item[];
}

/** How the items of a view are arranged in the batches of a stream. */
export interface Layout {
  readonly order: Order;
  /** The beginning of the paths of all items that an object has in a section, and of no others. */
  prefixOf(section: number, key: string): string;
}

/** The operations of a batch, without its sync marker. Subscribers with equal operations share the frames. */
export interface Changes {
  readonly isEmpty: boolean;
  /** The only element of `frames`, if there is one that many subscribers share. */
  readonly only?: Frame | undefined;
  /**
   * Encoded while they are read, so that no subscriber needs memory for a whole view. Contains {@link pause} where
   * other work should run first.
   */
  frames(): Iterable<Frame>;
}

/** The changes between two equal views. */
export const noChanges: Changes = { isEmpty: true, frames: () => [] };

/**
 * Returns the changes between the items of two states or views, object by object. For what many subscribers do not
 * share: the state of the cluster, and the change of a stream to another view. `keys` has the objects to compare in each
 * section. Within a phase, puts ascend by path and deletes descend.
 */
export function changesByKey(
  { order, prefixOf }: Layout,
  keys: (section: number) => Iterable<string>,
  before: (section: number, key: string) => readonly Item[],
  after: (section: number, key: string) => readonly Item[],
): Changes {
  function* frames(): Generator<Frame, void> {
    let count = 0;
    for (const { kind, section } of order.phases) {
      const prefixes = [...new Set(keys(section))].map((key) => ({ key, prefix: prefixOf(section, key) }));
      const sorted = prefixes.sort((a, b) => compareText(a.prefix, b.prefix));
      for (const { key } of kind === "put" ? sorted : sorted.reverse()) {
        const diff = diffItems(before(section, key), after(section, key));
        if (kind === "put") for (const { frame } of diff.added) yield frame;
        else {
          for (const { path } of deletedItems(diff).toReversed()) yield deleteFrame(order.sections[section] ?? 0, path);
        }
        count += 1;
        if (count % keysPerSlice === 0) yield pause;
      }
    }
  }
  const isEmpty = frames().find((frame) => frame !== pause) === undefined;
  return isEmpty ? noChanges : { isEmpty, frames };
}

/** Objects that are compared before other work has its turn: a few milliseconds. */
const keysPerSlice = 100;

/** An empty frame, after a slice of work that has encoded nothing to write yet. */
export const pause: Frame = Buffer.alloc(0);

/** Maximum time between two pauses, in milliseconds. */
const sliceMs = 5;

/**
 * Does work for each item, and yields {@link pause} after every 5 ms. For whatever takes more than 50 ms in a large
 * cluster: encoding all endpoints of a chunk of Services, or the first index of a class. Other streams and health
 * probes have their turn at each pause.
 */
export function* inSlices<T>(items: Iterable<T>, work: (item: T) => void): Generator<Frame, void> {
  let endMs = performance.now() + sliceMs;
  for (const item of items) {
    work(item);
    if (performance.now() < endMs) continue;
    yield pause;
    endMs = performance.now() + sliceMs;
  }
}
