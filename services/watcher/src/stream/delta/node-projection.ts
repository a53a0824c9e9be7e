import { compareText, getOrMake } from "@kpng/model/collections.ts";
import { type Frame, packFrames, resetFrame } from "../../items/frames.ts";
import { deleteFrameOf, type Item, nodeViewOrder, toggleDigests } from "../../items/item.ts";
import { itemAt, nodeOverlay, type Overlay, overlaysOf, serviceOverlay } from "../../items/overlay.ts";
import { deletedItems, diffItems, findItem, type ItemsDiff, isSameItem, noDiff } from "../../items/service-items.ts";
import { changedOwners, serviceAt, serviceStates, sharedItemsAt } from "../../items/service-state.ts";
import {
  type NodeViewRequest,
  type ViewClass,
  type ViewTarget,
  ViewTargetTracker,
  viewClassOf,
} from "../../items/view-target.ts";
import { Between, changedServices } from "../../store/derived.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { classIndex } from "./class-index.ts";
import { type Changes, joinFrames, noChanges, type Projection } from "./projection.ts";
import { resumeView } from "./resume-view.ts";
import { wholeView } from "./whole-view.ts";

/**
 * The view of one node. Each batch consists of bytes that the node's class shares, and of operations for the items that
 * differ on this node ({@link Overlay}):
 *
 * | Batch | Shared by the class | Of the node |
 * |---|---|---|
 * | whole view | chunks of 64 Services (`wholeView`) | all its overlays |
 * | changes | the operations of the changed Services (`classChanges`) | the overlays that changed |
 * | resume | the buckets that the node lacks (`resumeView`) | the overlays in these buckets |
 *
 * If the node's class changes, for example when its zone becomes known, the view begins again with Reset.
 *
 * The result keeps the digest of one subscriber's view, so each stream needs its own.
 */
export function nodeProjection(request: NodeViewRequest): Required<Projection> {
  const targets = new ViewTargetTracker(request);
  const digest = new OverlaysDigest();
  const resetDigest = (snapshot: Snapshot) =>
    request.isExtended ? (overlays: readonly Overlay[]) => digest.reset(snapshot, overlays) : undefined;
  const whole = (snapshot: Snapshot): Changes => wholeView(snapshot, targets.at(snapshot), resetDigest(snapshot));
  return {
    whole,
    resume: (snapshot, clientDigests) =>
      resumeView(snapshot, targets.at(snapshot), clientDigests, resetDigest(snapshot)),
    between(before, snapshot) {
      const [old, target] = [targets.at(before), targets.at(snapshot)];
      if (old !== target) return afterReset(whole(snapshot));
      const shared = classChanges(before, snapshot, target.viewClass);
      const overlays = overlayDiffs(before, snapshot, target, shared);
      digest.advance(before, snapshot, overlays);
      return nodeChanges(shared, overlays, request.takesBatches);
    },
    digest(snapshot) {
      const target = targets.at(snapshot);
      return classIndex(snapshot, target.viewClass).digest ^ digest.at(snapshot, target);
    },
  };
}

function* afterReset(changes: Changes): Iterable<Frame> {
  yield resetFrame;
  yield* changes;
}

/** The change of one overlay between two snapshots. */
interface OverlayDiff {
  /** Key of the Service; "" for the item of the node itself. */
  readonly key: string;
  readonly before: Overlay;
  readonly after: Overlay;
  /** Items that only one of the two overlays removes, or that only one of them adds. */
  readonly changed: readonly Item[];
}

const noOverlayDiffs: readonly OverlayDiff[] = [];

/**
 * Returns the overlays of a node that differ between two snapshots. *Cost:* proportional to the node's Services in
 * `keysByNode`; O(1) for most nodes.
 */
function overlayDiffs(
  before: Snapshot,
  snapshot: Snapshot,
  target: ViewTarget,
  { keysByNode }: ClassChanges,
): readonly OverlayDiff[] {
  const keys = keysByNode.get(target.node.name);
  const hasNode = target.request.wantsNode && isNodeChanged(before, snapshot, target.node.name);
  if (keys === undefined && !hasNode) return noOverlayDiffs;
  const diffs: OverlayDiff[] = [];
  const add = (key: string, old: Overlay, now: Overlay): void => {
    const ofBoth = [diffItems(old.removed, now.removed), diffItems(old.added, now.added)];
    const changed = ofBoth.flatMap(({ removed, added }) => [...removed, ...added]);
    if (changed.length > 0) diffs.push({ key, before: old, after: now, changed });
  };
  for (const key of keys ?? []) add(key, serviceOverlay(before, key, target), serviceOverlay(snapshot, key, target));
  if (hasNode) add("", nodeOverlay(before, target), nodeOverlay(snapshot, target));
  return diffs;
}

function isNodeChanged(before: Snapshot, snapshot: Snapshot, nodeName: string): boolean {
  if (before.serviceCIDRs !== snapshot.serviceCIDRs) return true;
  return before.nodes !== snapshot.nodes && before.nodes.get(nodeName) !== snapshot.nodes.get(nodeName);
}

/**
 * Returns the changes of one node. Compressed changes of its class are followed by corrections, which put or delete the
 * items at the paths where its overlays changed. If the changes are not compressed, the Services with these overlays
 * are instead compared as this node sees them, so that it gets no needless operations.
 *
 * *Cost:* O(1) unless the node's overlays changed; then proportional to the items of their Services that changed.
 */
function nodeChanges(shared: ClassChanges, overlays: readonly OverlayDiff[], takesBatches = false): Changes {
  const changes = takesBatches ? shared.packed() : shared.changes;
  if (overlays.length === 0) return changes;
  if (changes !== shared.changes) {
    // The changes of the class are compressed.
    const corrections = overlays.flatMap((diff) => [...correctionsOf(diff)]);
    return corrections.length === 0 ? changes : [...changes, Buffer.concat(corrections)];
  }
  const diffs = new Map(shared.diffs);
  for (const diff of overlays) diffs.set(diff.key, nodeDiff(diff, shared.diffs.get(diff.key)));
  const frames = framesOf([...diffs.values()]);
  return frames.length === 0 ? noChanges : joinFrames(frames);
}

/** Returns the difference between the items of a Service that the node receives before and after. */
function nodeDiff({ before, after, changed }: OverlayDiff, ofClass: ItemsDiff = noDiff): ItemsDiff {
  const removed: Item[] = [];
  const added: Item[] = [];
  // At all other paths, neither the item of the class nor the overlay has changed.
  const paths = new Set([...ofClass.removed, ...ofClass.added, ...changed].map(({ path }) => path));
  for (const path of [...paths].sort(compareText)) {
    const [old, now] = [itemAt(before, path), itemAt(after, path)];
    if (isUnchanged(old, now)) continue;
    if (old !== undefined) removed.push(old);
    if (now !== undefined) added.push(now);
  }
  return { removed, added };
}

/**
 * Yields the operations that follow the changes of the class, and give the node its correct items at the changed paths.
 */
function* correctionsOf({ before, after, changed }: OverlayDiff): Iterable<Frame> {
  for (const path of new Set(changed.map((item) => item.path))) {
    const [old, now] = [itemAt(before, path), itemAt(after, path)];
    const [sharedOld, sharedNow] = [findItem(before.shared, path), findItem(after.shared, path)];
    // The class's changes do not touch this path, and the node's item is the same as before.
    if (isUnchanged(sharedOld, sharedNow) && isUnchanged(old, now)) continue;
    // Any item at the path will do, because a delete names only the set and the path. If only `sharedOld` exists, the
    // node never had an item here, and the class's changes delete it.
    const deleted = old ?? sharedNow;
    if (now !== undefined) yield now.frame;
    else if (deleted !== undefined) yield deleteFrameOf(deleted);
  }
}

function isUnchanged(old: Item | undefined, now: Item | undefined): boolean {
  if (old === undefined || now === undefined) return old === now;
  return old.section === now.section && isSameItem(old, now);
}

/** The digest of all items in the overlays of one node, which follows the snapshots. */
class OverlaysDigest {
  #snapshot: Snapshot | undefined;
  #digest = 0n;

  /** Returns the digest for a snapshot. *Cost:* nothing if it is known, otherwise a pass over the node's own endpoints. */
  at(snapshot: Snapshot, target: ViewTarget): bigint {
    if (this.#snapshot !== snapshot) this.reset(snapshot, overlaysOf(snapshot, target));
    return this.#digest;
  }

  reset(snapshot: Snapshot, overlays: readonly Overlay[]): void {
    this.#snapshot = snapshot;
    this.#digest = overlays.reduce(
      (digest, { removed, added }) => toggleDigests(toggleDigests(digest, removed), added),
      0n,
    );
  }

  /** Advances the digest from `before` to `snapshot`. Does nothing unless the digest belongs to `before`. */
  advance(before: Snapshot, snapshot: Snapshot, diffs: readonly OverlayDiff[]): void {
    if (this.#snapshot !== before) return;
    this.#snapshot = snapshot;
    this.#digest = diffs.reduce((digest, { changed }) => toggleDigests(digest, changed), this.#digest);
  }
}

/** The changes between two snapshots that the subscribers of a class share. */
interface ClassChanges {
  /** For each node, the Services whose overlays may differ on that node; see changedOwners. */
  readonly keysByNode: ReadonlyMap<string, readonly string[]>;
  /** Differences by Service key. */
  readonly diffs: ReadonlyMap<string, ItemsDiff>;
  /** All operations in one frame. */
  readonly changes: readonly Frame[];
  /** Returns the same operations as compressed batches; {@link changes} if they are short. */
  packed(): readonly Frame[];
}

/**
 * Returns the changes of a class. *Cost:* proportional to the changed Services, once for each pair of snapshots and
 * class.
 */
function classChanges(before: Snapshot, snapshot: Snapshot, viewClass: ViewClass): ClassChanges {
  const { byClass, keys, dependsOnZone } = changesByClass.of(before, snapshot);
  // Without zone hints, all zones share the encoded changes.
  const { key } = dependsOnZone ? viewClass : viewClassOf(viewClass, "");
  return getOrMake(byClass, key, () => {
    const keysByNode = new Map<string, string[]>();
    const diffs = new Map<string, ItemsDiff>();
    for (const one of keys) {
      const owners = changedOwners(serviceAt(before, one, viewClass), serviceAt(snapshot, one, viewClass), viewClass);
      for (const name of owners) getOrMake(keysByNode, name, () => []).push(one);
      diffs.set(one, diffItems(sharedItemsAt(before, one, viewClass), sharedItemsAt(snapshot, one, viewClass)));
    }
    return { keysByNode, diffs, ...encodeFrames(framesOf([...diffs.values()])) };
  });
}

const changesByClass = new Between((before, snapshot) => {
  const keys = changedServices(before, snapshot);
  const dependsOnZone = keys.some((key) =>
    [before, snapshot].some((one) => serviceStates.at(one).get(key)?.ownEndpoints.hasZoneHints === true),
  );
  return { keys, dependsOnZone, byClass: new Map<string, ClassChanges>() };
});

/**
 * Minimum size of changes that are compressed, in bytes. For shorter changes, the saving would not be worth the
 * decompression on each node.
 */
const minPackedBytes = 16 * 1024;

function encodeFrames(all: readonly Frame[]): Pick<ClassChanges, "changes" | "packed"> {
  const bytes = Buffer.concat(all);
  const changes = bytes.length === 0 ? noChanges : [bytes];
  let packed = bytes.length < minPackedBytes ? changes : undefined;
  return {
    changes,
    packed() {
      packed ??= packFrames(all);
      return packed;
    },
  };
}

/** Returns the operations in the order of their phases: puts ascend by path, and deletes descend. */
function framesOf(diffs: readonly ItemsDiff[]): readonly Frame[] {
  const puts = diffs.flatMap(({ added }) => added).sort((a, b) => compareText(a.path, b.path));
  const deletes = diffs.flatMap(deletedItems).sort((a, b) => compareText(b.path, a.path));
  return nodeViewOrder.phases.flatMap(({ kind, section }) => {
    const items = (kind === "put" ? puts : deletes).filter((item) => item.section === section);
    return items.map((item) => (kind === "put" ? item.frame : deleteFrameOf(item)));
  });
}
