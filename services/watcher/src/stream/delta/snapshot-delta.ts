import { getOrMake } from "@kpng/model/get-or-make.ts";
import { deleteFrame, type Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { nodeViewOrder, type ViewClass } from "../../items/node-view-items.ts";
import { ownersOf } from "../../items/own-services.ts";
import { diffServiceItems, type ItemsDiff } from "../../items/service-items.ts";
import { classItemsAt } from "../../items/service-units.ts";
import { between, changedServices } from "../../store/derived.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { type EncodedOps, encodeOps, type PathOp } from "./encoded-ops.ts";
import { packFrames } from "./packed-frames.ts";
import { type Changes, noChanges } from "./projection.ts";

/** What changed between two snapshots, worked out once for all subscribers that go from the one to the other. */
export interface SnapshotDelta {
  /** Services that may be told differently. */
  readonly keys: readonly string[];
  /** For each node those of them that have endpoints of its own, before or after. */
  readonly keysByNode: ReadonlyMap<string, readonly string[]>;
  /** What is told to all who have none of their own. */
  forClass(viewClass: ViewClass): ClassDelta;
}

/** The changes of an audience. */
export interface ClassDelta {
  /** One for each phase of the order. */
  readonly opsByPhase: readonly EncodedOps[];
  /** In one piece. */
  readonly changes: Changes;
  /** The same, packed; {@link changes} if that would not pay. */
  readonly packed: Changes;
}

/** In bytes; less is not packed: what is saved is not worth that each node unpacks it. */
const minPackedBytes = 16 * 1024;

/**
 * *Cost:* the first time, what changed; after that, a look-up. One that lags behind makes a delta of its own, and pins
 * nothing but the snapshot that it was sent.
 */
export const snapshotDelta = between(makeDelta);

function makeDelta(before: Snapshot, snapshot: Snapshot): SnapshotDelta {
  const keys = changedServices(before, snapshot);
  const keysByNode = new Map<string, string[]>();
  const proxyNames = new Set<string | undefined>();
  for (const key of keys) {
    const old = ownersOf(before, key);
    for (const name of old.keys()) getOrMake(keysByNode, name, () => []).push(key);
    for (const name of ownersOf(snapshot, key).keys()) {
      if (!old.has(name)) getOrMake(keysByNode, name, () => []).push(key);
    }
    for (const { services } of [before, snapshot]) proxyNames.add(services.get(key)?.proxyName);
  }
  const byClass = new Map<string, ClassDelta>();
  return {
    keys,
    keysByNode,
    forClass(viewClass) {
      const held = byClass.get(viewClass.key);
      if (held !== undefined) return held;
      // There is no end of the names that subscribers can make up: only for those that a Service has is anything kept.
      if (!proxyNames.has(viewClass.proxyName)) return noDelta;
      return getOrMake(byClass, viewClass.key, () =>
        classDelta(
          keys.map((key) =>
            diffServiceItems(classItemsAt(before, key, viewClass), classItemsAt(snapshot, key, viewClass)),
          ),
        ),
      );
    },
  };
}

const noDelta: ClassDelta = classDelta([]);

function classDelta(diffs: readonly ItemsDiff[]): ClassDelta {
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

/** The operation that deletes an item. */
export function deleteOp({ section, path }: Pick<Item, "section" | "path">): PathOp {
  return { path, frame: deleteFrame(nodeViewOrder.sections[section] ?? 0, path) };
}
