import type { Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { type NodeViewRequest, nodeItems, nodeViewOrder, type ViewClass } from "../../items/node-view-items.ts";
import { diffServiceItems, findItem, isSameItem, type ServiceItems } from "../../items/service-items.ts";
import { classItemsAt, type NodeUnit, nodeUnit, noNodeUnit, serviceFor } from "../../items/service-units.ts";
import type { ViewTarget } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import type { ChoosingNode } from "../../view/choose-endpoints.ts";
import { spliceOps } from "./encoded-ops.ts";
import { type Changes, noChanges } from "./projection.ts";
import { type ClassDelta, deleteOp, type SnapshotDelta } from "./snapshot-delta.ts";

/**
 * Returns the changes of a node that is in the same zone before and after: those of its audience, corrected on the paths
 * where its own endpoints are or were.
 *
 * *Cost:* the node's own endpoints of the Services that changed, and a copy of the bytes that it shares with others.
 * Next to nothing for a node that has none, or whose own ones stayed what they are.
 */
export function nodeDelta(
  before: Snapshot,
  snapshot: Snapshot,
  request: NodeViewRequest,
  { node, viewClass }: ViewTarget,
  delta: SnapshotDelta,
): Changes {
  const shared = delta.forClass(viewClass);
  const ownKeys = delta.keysByNode.get(node.name);
  const isNodeTold = request.wantsNode && isNodeChanged(before, snapshot, node.name);
  if (ownKeys === undefined && !isNodeTold) return request.takesBatches ? shared.packed : shared.changes;
  const corrections: Correction[] = [];
  for (const key of ownKeys ?? []) {
    const sides = [before, snapshot].map((one) => ({
      shared: classItemsAt(one, key, viewClass),
      own: nodeUnitAt(one, key, viewClass, node),
    }));
    corrections.push(...correct(...(sides as [Side, Side])));
  }
  if (isNodeTold) {
    const [old] = nodeItems(before, node.name);
    const [now] = nodeItems(snapshot, node.name);
    const [wanted, item] = [operations(old, now), now ?? old];
    if (item !== undefined && wanted.length > 0)
      corrections.push({ told: [], wanted, item, isThere: now !== undefined });
  }
  const told = request.takesBatches ? shared.packed : shared.changes;
  if (corrections.length === 0) return told;
  if (told === shared.changes) return withCorrections(shared, corrections);
  return { isEmpty: false, frames: () => [...told.frames(), ...outcomes(corrections)] };
}

/** True if what a node is told of itself may have changed. */
export function isNodeChanged(before: Snapshot, snapshot: Snapshot, nodeName: string): boolean {
  if (before.serviceCIDRs !== snapshot.serviceCIDRs) return true;
  return before.nodes !== snapshot.nodes && before.nodes.get(nodeName) !== snapshot.nodes.get(nodeName);
}

function nodeUnitAt(snapshot: Snapshot, key: string, viewClass: ViewClass, node: ChoosingNode): NodeUnit {
  const state = serviceFor(snapshot, key, viewClass);
  return state === undefined ? noNodeUnit : nodeUnit(state, node, viewClass.isExtended);
}

/** A Service at one of the two snapshots. */
interface Side {
  /** As the audience is told it. */
  readonly shared: ServiceItems;
  readonly own: NodeUnit;
}

/** A path on which a node is told something else than its audience. */
interface Correction {
  /** To the audience. */
  readonly told: readonly Operation[];
  /** To the node. */
  readonly wanted: readonly Operation[];
  /** What is there in the end, or an item that was. */
  readonly item: Item;
  readonly isThere: boolean;
}

interface Operation {
  /** Index into the order's phases. */
  readonly phase: number;
  readonly path: string;
  readonly frame: Frame;
}

function correct(old: Side, now: Side): Correction[] {
  const isShared = old.own.base === old.shared && now.own.base === now.shared;
  if (isShared && isSameList(old.own.hidden, now.own.hidden) && isSameList(old.own.own, now.own.own)) return [];
  const paths = new Set<string>();
  const add = (items: readonly Item[]): void => {
    for (const { path } of items) paths.add(path);
  };
  for (const { hidden, own } of [old.own, now.own]) {
    add(hidden);
    add(own);
  }
  if (!isShared) {
    for (const { puts, deletes } of [
      diffServiceItems(old.shared, now.shared),
      diffServiceItems(old.own.base, now.own.base),
    ]) {
      add(puts);
      add(deletes);
    }
  }
  const [itemBefore, itemAfter] = [itemsAt(old.own), itemsAt(now.own)];
  const corrections: Correction[] = [];
  for (const path of paths) {
    const [before, after] = [itemBefore(path), itemAfter(path)];
    const [toldBefore, toldAfter] = [findItem(old.shared, path), findItem(now.shared, path)];
    if (before === toldBefore && after === toldAfter) continue;
    const told = operations(toldBefore, toldAfter);
    const wanted = operations(before, after);
    const item = after ?? before ?? toldAfter ?? toldBefore;
    if (item !== undefined && told.length + wanted.length > 0) {
      corrections.push({ told, wanted, item, isThere: after !== undefined });
    }
  }
  return corrections;
}

function isSameList<T>(a: readonly T[], b: readonly T[]): boolean {
  return a.length === b.length && a.every((one, index) => one === b[index]);
}

/** The item that a node has at a path. */
function itemsAt({ base, hidden, own }: NodeUnit): (path: string) => Item | undefined {
  const ownByPath = new Map(own.map((item) => [item.path, item]));
  const without = new Set(hidden);
  return (path) => {
    const item = ownByPath.get(path) ?? findItem(base, path);
    return item === undefined || without.has(item) ? undefined : item;
  };
}

/** What leads from one item at a path to another. */
function operations(before: Item | undefined, after: Item | undefined): readonly Operation[] {
  const isMoved = before?.section !== after?.section;
  const made: Operation[] = [];
  if (before !== undefined && isMoved) made.push({ phase: phaseOf("delete", before), ...deleteOp(before) });
  if (after !== undefined && (before === undefined || isMoved || !isSameItem(before, after))) {
    made.push({ phase: phaseOf("put", after), path: after.path, frame: after.frame });
  }
  return made;
}

function phaseOf(kind: "put" | "delete", { section }: Item): number {
  return nodeViewOrder.phases.findIndex((phase) => phase.kind === kind && phase.section === section);
}

/** The audience's operations with the corrected ones in place of theirs, in order. */
function withCorrections({ opsByPhase }: ClassDelta, corrections: readonly Correction[]): Changes {
  const edits = opsByPhase.map(() => new Map<string, Frame | undefined>());
  for (const { told, wanted } of corrections) {
    for (const { phase, path } of told) edits[phase]?.set(path, undefined);
    for (const { phase, path, frame } of wanted) edits[phase]?.set(path, frame);
  }
  const bytes = Buffer.concat(opsByPhase.flatMap((ops, phase) => spliceOps(ops, edits[phase] ?? new Map())));
  return bytes.length === 0 ? noChanges : { isEmpty: false, frames: () => [bytes] };
}

/** What holds in the end on the corrected paths, whatever was told of them before. */
function outcomes(corrections: readonly Correction[]): readonly Frame[] {
  if (corrections.length === 0) return [];
  return [Buffer.concat(corrections.map(({ item, isThere }) => (isThere ? item.frame : deleteOp(item).frame)))];
}
