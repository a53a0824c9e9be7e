import type { Frame } from "../../items/frames.ts";
import {
  type Item,
  nodeItems,
  nodeSection,
  nodeViewOrder,
  serviceSection,
  toggleDigests,
  uncachedDigestOf,
} from "../../items/item.ts";
import { itemAt, nodeOverlay, type Overlay, overlaysOf, serviceOverlay } from "../../items/overlay.ts";
import { diffItems, findItem, isSameItem, sortByPath } from "../../items/service-items.ts";
import { serviceStates } from "../../items/service-state.ts";
import { type NodeViewRequest, type ViewTarget, ViewTargetTracker } from "../../items/view-target.ts";
import { changedServices } from "../../store/derived.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { type ClassDelta, classDelta } from "./class-delta.ts";
import { classDigest } from "./class-index.ts";
import { deleteOp, type Op, spliceOps } from "./encoded-ops.ts";
import { type Changes, changesByKey, type Layout, noChanges, type Projection } from "./projection.ts";
import { resumeView } from "./resume-view.ts";
import { wholeView } from "./whole-view.ts";

/**
 * The view of one node, as whole view, as changes between two snapshots, or as difference to a view that the node
 * holds.
 *
 * Nodes with the same zone, features and proxy name are a class, and share nearly all items and their encoded bytes.
 * What differs is the overlay of each Service that has endpoints on the node. So a batch consists of the bytes of the
 * class and some operations of the node's own:
 *
 * | Batch | Shared by the class | Of the node |
 * |---|---|---|
 * | whole view | chunks of 64 Services (`wholeView`) | all its overlays |
 * | changes | the operations of the changed Services (`classDelta`) | the overlays that changed |
 * | resume | the buckets that the node lacks (`resumeView`) | the overlays in these buckets |
 *
 * If the class of the node changes, as when its zone becomes known, the items of both classes are compared.
 */
export function nodeProjection(request: NodeViewRequest): Required<Projection> {
  const targets = new ViewTargetTracker(request);
  const digest = new OverlaysDigest();
  const resetDigest =
    (snapshot: Snapshot, target: ViewTarget) =>
    (overlays: readonly Overlay[]): void => {
      if (request.isExtended) digest.reset(snapshot, target, overlays);
    };
  const whole = (snapshot: Snapshot): Changes => {
    const target = targets.at(snapshot);
    return wholeView(snapshot, target, resetDigest(snapshot, target));
  };
  return {
    whole,
    resume(snapshot, held) {
      const target = targets.at(snapshot);
      return resumeView(snapshot, target, held, resetDigest(snapshot, target));
    },
    between(before, snapshot) {
      const [old, target] = [targets.at(before), targets.at(snapshot)];
      if (old !== target) return betweenTargets([before, old], [snapshot, target]);
      const shared = classDelta(before, snapshot, target.viewClass);
      const overlays = overlayDeltas(before, snapshot, target, shared);
      digest.advance(before, snapshot, overlays);
      return nodeChanges(shared, overlays, request.takesBatches);
    },
    digest(snapshot) {
      const target = targets.at(snapshot);
      return classDigest(snapshot, target.viewClass) ^ digest.at(snapshot, target);
    },
    layout,
    keys: (snapshot, section) => (section === nodeSection ? nodeKeys(request) : snapshot.services.keys()),
    items: (snapshot, section, key) => itemsIn(snapshot, section, key, targets.at(snapshot)),
  };
}

type Located = readonly [Snapshot, ViewTarget];

/** Compares all Services whose items may depend on the zone or the proxy name, and those that changed. */
function betweenTargets([before, old]: Located, [snapshot, target]: Located): Changes {
  const keys = new Set(changedServices(before, snapshot));
  for (const one of [before, snapshot]) {
    for (const [key, state] of serviceStates(one).entries()) if (state.own.hasZoneHints) keys.add(key);
  }
  return changesByKey(
    layout,
    (section) => (section === nodeSection ? nodeKeys(target.request) : keys),
    (section, key) => itemsIn(before, section, key, old),
    (section, key) => itemsIn(snapshot, section, key, target),
  );
}

const layout: Layout = {
  order: nodeViewOrder,
  // "a-b" comes after "a", but "a-b/pod" before "a/pod".
  prefixOf: (section, key) => (section === nodeSection || section === serviceSection ? key : `${key}/`),
};

function nodeKeys({ wantsNode, nodeName }: NodeViewRequest): readonly string[] {
  return wantsNode ? [nodeName] : [];
}

function itemsIn(snapshot: Snapshot, section: number, key: string, target: ViewTarget): readonly Item[] {
  if (section === nodeSection) return nodeKeys(target.request).includes(key) ? nodeItems(snapshot, key) : [];
  const { shared, removed, added } = serviceOverlay(snapshot, key, target, false);
  const gone = new Set(removed);
  const items = added.length === 0 ? shared.items : sortByPath([...shared.items, ...added]);
  return items.filter((item) => item.section === section && !gone.has(item));
}

/** The change of one overlay between two snapshots. */
interface OverlayDelta {
  readonly before: Overlay;
  readonly after: Overlay;
  /** Items that one of the two overlays removes or adds and the other does not. */
  readonly changed: readonly Item[];
}

const noDeltas: readonly OverlayDelta[] = [];

/**
 * Returns the overlays of a node that differ between two snapshots in which its view target is the same.
 *
 * *Cost:* the node's own endpoints of the Services of which one of them changed, or the use of all of them; next to
 * nothing for other nodes.
 */
function overlayDeltas(
  before: Snapshot,
  snapshot: Snapshot,
  target: ViewTarget,
  { keysByNode }: ClassDelta,
): readonly OverlayDelta[] {
  const keys = keysByNode.get(target.node.name);
  const hasNode = target.request.wantsNode && isNodeChanged(before, snapshot, target.node.name);
  if (keys === undefined && !hasNode) return noDeltas;
  const deltas: OverlayDelta[] = [];
  const add = (old: Overlay, now: Overlay): void => {
    const diffs = [diffItems(old.removed, now.removed), diffItems(old.added, now.added)];
    const changed = diffs.flatMap(({ removed, added }) => [...removed, ...added]);
    if (changed.length > 0) deltas.push({ before: old, after: now, changed });
  };
  for (const key of keys ?? []) {
    add(serviceOverlay(before, key, target, true), serviceOverlay(snapshot, key, target, true));
  }
  if (hasNode) add(nodeOverlay(before, target), nodeOverlay(snapshot, target));
  return deltas;
}

function isNodeChanged(before: Snapshot, snapshot: Snapshot, nodeName: string): boolean {
  if (before.serviceCIDRs !== snapshot.serviceCIDRs) return true;
  return before.nodes !== snapshot.nodes && before.nodes.get(nodeName) !== snapshot.nodes.get(nodeName);
}

/**
 * Returns the changes of a class, with other operations on the paths where the overlays of one node changed.
 *
 * *Cost:* the items of these overlays. *Bound:* the operations on these items; the others are slices of the class's
 * bytes, so that a reader that stops keeps no copy of a large change.
 */
function nodeChanges(shared: ClassDelta, overlays: readonly OverlayDelta[], takesBatches = false): Changes {
  const changes = takesBatches ? shared.packed : shared.changes;
  if (overlays.length === 0) return changes;
  const isPacked = changes !== shared.changes;
  const edits = shared.opsByPhase.map(() => new Map<string, Frame | undefined>());
  const outcomes: Frame[] = [];
  for (const { before, after, changed } of overlays) {
    for (const path of new Set(changed.map((item) => item.path))) {
      const [old, now] = [itemAt(before, path), itemAt(after, path)];
      const [sharedOld, sharedNow] = [findItem(before.shared.items, path), findItem(after.shared.items, path)];
      const [forClass, forNode] = [operations(sharedOld, sharedNow), operations(old, now)];
      if (forClass.length + forNode.length === 0) continue;
      for (const { phase } of forClass) edits[phase]?.set(path, undefined);
      for (const { phase, frame } of forNode) edits[phase]?.set(path, frame);
      const gone = old ?? sharedNow ?? sharedOld;
      if (isPacked && now !== undefined) outcomes.push(now.frame);
      else if (isPacked && gone !== undefined) outcomes.push(deleteOp(gone).frame);
    }
  }
  if (isPacked) {
    return outcomes.length === 0
      ? changes
      : { isEmpty: false, frames: () => [...changes.frames(), Buffer.concat(outcomes)] };
  }
  if (edits.every(({ size }) => size === 0)) return changes;
  const frames = shared.opsByPhase.flatMap((ops, phase) => spliceOps(ops, edits[phase] ?? new Map()));
  return frames.length === 0 ? noChanges : { isEmpty: false, frames: () => frames };
}

interface PhaseOp extends Op {
  /** Index into the phases of the order. */
  readonly phase: number;
}

/** Returns the operations that replace one item at a path by another. */
function operations(before: Item | undefined, after: Item | undefined): readonly PhaseOp[] {
  const isMoved = before?.section !== after?.section;
  const ops: PhaseOp[] = [];
  if (before !== undefined && isMoved) ops.push({ phase: phaseOf("delete", before), ...deleteOp(before) });
  if (after !== undefined && (before === undefined || isMoved || !isSameItem(before, after))) {
    ops.push({ phase: phaseOf("put", after), path: after.path, frame: after.frame });
  }
  return ops;
}

function phaseOf(kind: "put" | "delete", { section }: Item): number {
  return nodeViewOrder.phases.findIndex((phase) => phase.kind === kind && phase.section === section);
}

/**
 * The exclusive or of the digests of all items in the overlays of one node, from snapshot to snapshot.
 *
 * *Bound:* a reference to the snapshot for which it was last computed.
 */
class OverlaysDigest {
  #snapshot: Snapshot | undefined;
  #target: ViewTarget | undefined;
  #digest = 0n;

  /** *Cost:* the node's own endpoints of the Services that changed; all of them, for another target. */
  at(snapshot: Snapshot, target: ViewTarget): bigint {
    const before = this.#snapshot;
    if (before === undefined || this.#target !== target) this.reset(snapshot, target, overlaysOf(snapshot, target));
    else if (before !== snapshot) {
      const shared = classDelta(before, snapshot, target.viewClass);
      this.advance(before, snapshot, overlayDeltas(before, snapshot, target, shared));
    }
    return this.#digest;
  }

  reset(snapshot: Snapshot, target: ViewTarget, overlays: readonly Overlay[]): void {
    this.#snapshot = snapshot;
    this.#target = target;
    this.#digest = overlays.reduce(
      (digest, { removed, added }) => toggleDigests(toggleDigests(digest, removed), added, uncachedDigestOf),
      0n,
    );
  }

  /** Does nothing unless the digest is that of `before`. */
  advance(before: Snapshot, snapshot: Snapshot, deltas: readonly OverlayDelta[]): void {
    if (this.#snapshot !== before) return;
    this.#snapshot = snapshot;
    this.#digest = deltas.reduce((digest, { changed }) => toggleDigests(digest, changed), this.#digest);
  }
}
