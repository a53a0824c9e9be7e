import type { Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { nodeViewOrder } from "../../items/node-view-items.ts";
import { itemAt } from "../../items/overlay.ts";
import { findItem, isSameItem } from "../../items/service-items.ts";
import { type OpEdits, type PathOp, spliceOps } from "./encoded-ops.ts";
import type { OverlayDelta } from "./overlay-delta.ts";
import { type Changes, noChanges } from "./projection.ts";
import { type ClassDelta, deleteOp } from "./snapshot-delta.ts";

/**
 * Returns the changes of one node's view: those of its class, with other operations on the paths where its overlays
 * changed. An overlay is the difference between the items of a Service that a class shares and those of one node.
 *
 * *Cost:* the items of the overlays that changed; none without such overlays. *Bound:* the operations on these items;
 * the others are slices of the class's bytes, so that a reader that stops keeps no copy of a large change.
 *
 * `nodeProjection` calls it for each node at each change. Separate from `snapshotDelta`, which computes the part that
 * all nodes of a class share.
 */
export function nodeDelta(shared: ClassDelta, overlays: readonly OverlayDelta[], takesBatches = false): Changes {
  const changes = takesBatches ? shared.packed : shared.changes;
  const corrections = overlays.flatMap(correctionsOf);
  if (corrections.length === 0) return changes;
  if (changes === shared.changes) return withCorrections(shared, corrections);
  const outcomes = corrections.map(({ item, isDeleted }) => (isDeleted ? deleteOp(item).frame : item.frame));
  return { isEmpty: false, frames: () => [...changes.frames(), Buffer.concat(outcomes)] };
}

/** The operations on one path, where a node needs different ones from its class. */
interface Correction {
  readonly forClass: readonly PhaseOp[];
  readonly forNode: readonly PhaseOp[];
  /** The item that the node has at the path afterwards; if none, any item that was there. */
  readonly item: Item;
  readonly isDeleted: boolean;
}

interface PhaseOp extends PathOp {
  /** Index into the phases of the order. */
  readonly phase: number;
}

function correctionsOf({ before, after, changed }: OverlayDelta): Correction[] {
  const paths = new Set(changed.map(({ path }) => path));
  return [...paths].flatMap((path) => {
    const [old, now] = [itemAt(before, path), itemAt(after, path)];
    const [sharedOld, sharedNow] = [findItem(before.shared.items, path), findItem(after.shared.items, path)];
    const [forClass, forNode] = [operations(sharedOld, sharedNow), operations(old, now)];
    const item = now ?? old ?? sharedNow ?? sharedOld;
    if (item === undefined || forClass.length + forNode.length === 0) return [];
    return [{ forClass, forNode, item, isDeleted: now === undefined }];
  });
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

const noEdits: OpEdits = new Map();

/** The operations of the class in their order, with the corrected ones in their place. */
function withCorrections({ opsByPhase }: ClassDelta, corrections: readonly Correction[]): Changes {
  const edits = opsByPhase.map(() => new Map<string, Frame | undefined>());
  for (const { forClass, forNode } of corrections) {
    for (const { phase, path } of forClass) edits[phase]?.set(path, undefined);
    for (const { phase, path, frame } of forNode) edits[phase]?.set(path, frame);
  }
  const frames = opsByPhase.flatMap((ops, phase) => spliceOps(ops, edits[phase] ?? noEdits));
  return frames.length === 0 ? noChanges : { isEmpty: false, frames: () => frames };
}
