import { getOrMake } from "@kpng/model/get-or-make.ts";
import { deleteFrame, type Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { nodeViewOrder } from "../../items/node-view-items.ts";
import { diffSorted, type ItemsDiff } from "../../items/service-items.ts";
import { changedOwners, serviceAt, sharedItemsAt } from "../../items/service-state.ts";
import { type ViewClass, viewClassOf } from "../../items/view-target.ts";
import { between, changedServices } from "../../store/derived.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { hasZoneHints } from "./class-values.ts";
import { type EncodedOps, encodeOps, type PathOp } from "./encoded-ops.ts";
import { packFrames } from "./packed-frames.ts";
import { type Changes, noChanges } from "./projection.ts";

/**
 * The difference between two snapshots, computed once for all subscribers that advance from the one to the other.
 *
 * `nodeProjection` takes the part of the node's class from it, and `overlayDeltas` the Services of the node. Separate
 * from `nodeDelta`, which adds what differs for the one node.
 */
export interface SnapshotDelta {
  /** The Services that changed. */
  readonly keys: readonly string[];
  /** The changes that a node without such endpoints receives. */
  forClass(viewClass: ViewClass): ClassDelta;
}

/** The changes that the subscribers of a class share. */
export interface ClassDelta {
  /** For each node, the Services of which it may need other changes than its class; see changedOwners. */
  readonly keysByNode: ReadonlyMap<string, readonly string[]>;
  /** One element for each phase of the order. */
  readonly opsByPhase: readonly EncodedOps[];
  /** All operations as one frame buffer. */
  readonly changes: Changes;
  /** The same as compressed batches; {@link changes} if they are short. */
  readonly packed: Changes;
}

/** Shorter changes are not compressed, in bytes: the saving would not be worth the decompression on each node. */
const minPackedBytes = 16 * 1024;

/**
 * Returns the difference between two snapshots.
 *
 * *Cost:* the Services that changed, at the first call for a pair of snapshots; then a look-up. A subscriber that lags
 * behind causes a delta of its own, which references only the snapshot that it was last sent.
 */
export const snapshotDelta = between(makeDelta);

function makeDelta(before: Snapshot, snapshot: Snapshot): SnapshotDelta {
  const keys = changedServices(before, snapshot);
  const byClass = new Map<string, ClassDelta>();
  const diffFor = (viewClass: ViewClass, key: string): ItemsDiff =>
    diffSorted(sharedItemsAt(before, key, viewClass).items, sharedItemsAt(snapshot, key, viewClass).items);
  const dependsOnZone = keys.some((key) => hasZoneHints(before, key) || hasZoneHints(snapshot, key));
  return {
    keys,
    forClass(viewClass) {
      // Without zone hints, all zones share what is encoded.
      const { key } = dependsOnZone ? viewClass : viewClassOf(viewClass, "");
      return getOrMake(byClass, key, () => {
        const keysByNode = new Map<string, string[]>();
        for (const one of keys) {
          const owners = changedOwners(
            serviceAt(before, one, viewClass),
            serviceAt(snapshot, one, viewClass),
            viewClass,
          );
          for (const name of owners) getOrMake(keysByNode, name, () => []).push(one);
        }
        return { keysByNode, ...encodeDiffs(keys.map((one) => diffFor(viewClass, one))) };
      });
    },
  };
}

function encodeDiffs(diffs: readonly ItemsDiff[]): Omit<ClassDelta, "keysByNode"> {
  const puts = diffs.flatMap((diff) => diff.puts);
  const deletes = diffs.flatMap((diff) => diff.deletes);
  const opsByPhase = nodeViewOrder.phases.map(({ kind, section }) => {
    const inSection = (items: readonly Item[]): readonly Item[] => items.filter((item) => item.section === section);
    return kind === "put" ? encodeOps(inSection(puts)) : encodeOps(inSection(deletes).map(deleteOp), true);
  });
  const bytes = Buffer.concat(opsByPhase.map((ops) => ops.bytes));
  const changes: Changes = bytes.length === 0 ? noChanges : { isEmpty: false, only: bytes, frames: () => [bytes] };
  if (bytes.length < minPackedBytes) return { opsByPhase, changes, packed: changes };
  let frames: readonly Frame[] | undefined;
  const pack = (): readonly Frame[] => {
    frames ??= packFrames(opsByPhase.flatMap(({ ops }) => ops.map(({ frame }) => frame)));
    return frames;
  };
  return { opsByPhase, changes, packed: { isEmpty: false, frames: pack } };
}

/**
 * Returns the operation that deletes an item. Also used for the corrections of single nodes, by `nodeDelta`,
 * `resumeView` and `wholeView`.
 */
export function deleteOp({ section, path }: Pick<Item, "section" | "path">): PathOp {
  return { path, frame: deleteFrame(nodeViewOrder.sections[section] ?? 0, path) };
}
