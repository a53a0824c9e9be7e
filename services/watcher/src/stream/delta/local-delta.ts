import { getOrMake } from "@kpng/model/get-or-make.ts";
import { deleteFrame, type Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { type Audience, localOrder } from "../../items/local-units.ts";
import { ownersOf } from "../../items/own-services.ts";
import { unitAt } from "../../items/service-units.ts";
import { diffUnits, type UnitDiff } from "../../items/unit.ts";
import { between, changedServices } from "../../store/derived.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { packFrames } from "./packed-frames.ts";
import { type Changes, noChanges } from "./projection.ts";
import { makeStrip, type PathOp, type Strip } from "./strip.ts";

/** What changed between two snapshots, worked out once for all subscribers that go from the one to the other. */
export interface LocalDelta {
  /** Services that may be told differently. */
  readonly keys: readonly string[];
  /** For each node those of them that have endpoints of its own, before or after. */
  readonly keysByNode: ReadonlyMap<string, readonly string[]>;
  /** What is told to all who have none of their own. */
  forAudience(audience: Audience): ClassDelta;
}

/** The changes of an audience. */
export interface ClassDelta {
  /** One for each phase of the order. */
  readonly strips: readonly Strip[];
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
export const localDelta = between(makeDelta);

function makeDelta(before: Snapshot, snapshot: Snapshot): LocalDelta {
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
  const byAudience = new Map<string, ClassDelta>();
  return {
    keys,
    keysByNode,
    forAudience(audience) {
      const held = byAudience.get(audience.key);
      if (held !== undefined) return held;
      // There is no end of the names that subscribers can make up: only for those that a Service has is anything kept.
      if (!proxyNames.has(audience.proxyName)) return noDelta;
      return getOrMake(byAudience, audience.key, () =>
        classDelta(keys.map((key) => diffUnits(unitAt(before, key, audience), unitAt(snapshot, key, audience)))),
      );
    },
  };
}

const noDelta: ClassDelta = classDelta([]);

function classDelta(diffs: readonly UnitDiff[]): ClassDelta {
  const puts = diffs.flatMap((diff) => diff.puts);
  const deletes = diffs.flatMap((diff) => diff.deletes);
  const strips = localOrder.phases.map(({ kind, section }) => {
    const inSection = (items: readonly Item[]): readonly Item[] => items.filter((item) => item.section === section);
    return kind === "put" ? makeStrip(inSection(puts)) : makeStrip(inSection(deletes).map(deletion), true);
  });
  const bytes = Buffer.concat(strips.map((strip) => strip.bytes));
  const changes: Changes = bytes.length === 0 ? noChanges : { isEmpty: false, only: bytes, frames: () => [bytes] };
  if (bytes.length < minPackedBytes) return { strips, changes, packed: changes };
  let frames: readonly Frame[] | undefined;
  const pack = (): readonly Frame[] => {
    frames ??= packFrames(strips.flatMap(({ ops }) => ops.map(({ frame }) => frame)));
    return frames;
  };
  return { strips, changes, packed: { isEmpty: false, frames: pack } };
}

/** The operation that deletes an item. */
export function deletion({ section, path }: Pick<Item, "section" | "path">): PathOp {
  return { path, frame: deleteFrame(localOrder.sections[section] ?? 0, path) };
}
