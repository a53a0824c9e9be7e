import { getOrMake } from "@kpng/model/collections.ts";
import type { Frame } from "../../items/frames.ts";
import { type Item, nodeViewOrder } from "../../items/item.ts";
import { deletedItems, diffItems, type ItemsDiff } from "../../items/service-items.ts";
import { changedOwners, serviceAt, serviceStates, sharedItemsAt } from "../../items/service-state.ts";
import { type ViewClass, viewClassOf } from "../../items/view-target.ts";
import { between, changedServices } from "../../store/derived.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { deleteOp, type EncodedOps, encodeOps, packFrames } from "./encoded-ops.ts";
import { type Changes, noChanges } from "./projection.ts";

/** The changes between two snapshots that the subscribers of a class share. */
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

/**
 * Returns the changes of a class between two snapshots.
 *
 * *Cost:* the Services that changed, at the first call for a pair of snapshots and a class; then a look-up. A
 * subscriber that lags behind causes a delta of its own, which references only the snapshot that it was last sent.
 */
export function classDelta(before: Snapshot, snapshot: Snapshot, viewClass: ViewClass): ClassDelta {
  const { byClass, keys, dependsOnZone } = deltas(before, snapshot);
  // Without zone hints, all zones share what is encoded.
  const { key } = dependsOnZone ? viewClass : viewClassOf(viewClass, "");
  return getOrMake(byClass, key, () => {
    const keysByNode = new Map<string, string[]>();
    const diffs = keys.map((one) => {
      const owners = changedOwners(serviceAt(before, one, viewClass), serviceAt(snapshot, one, viewClass), viewClass);
      for (const name of owners) getOrMake(keysByNode, name, () => []).push(one);
      return diffItems(sharedItemsAt(before, one, viewClass).items, sharedItemsAt(snapshot, one, viewClass).items);
    });
    return { keysByNode, ...encodeDiffs(diffs) };
  });
}

const deltas = between((before, snapshot) => {
  const keys = changedServices(before, snapshot);
  const dependsOnZone = keys.some((key) =>
    [before, snapshot].some((one) => serviceStates(one).get(key)?.own.hasZoneHints === true),
  );
  return { keys, dependsOnZone, byClass: new Map<string, ClassDelta>() };
});

/** Shorter changes are not compressed, in bytes: the saving would not be worth the decompression on each node. */
const minPackedBytes = 16 * 1024;

function encodeDiffs(diffs: readonly ItemsDiff[]): Omit<ClassDelta, "keysByNode"> {
  const puts = diffs.flatMap(({ added }) => added);
  const deletes = diffs.flatMap(deletedItems);
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
