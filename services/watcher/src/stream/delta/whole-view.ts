import { compareText } from "@kpng/model/text-order.ts";
import type { Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import {
  anonymousSection,
  type NodeViewRequest,
  nodeItems,
  podSection,
  serviceSection,
  type ViewClass,
} from "../../items/node-view-items.ts";
import { type OwnUnit, ownItems, ownUnits } from "../../items/own-units.ts";
import type { ViewTarget } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { spliceOps } from "./encoded-ops.ts";
import type { Changes } from "./projection.ts";
import { chunkOps, chunksByEndpoint, chunksByService, packedChunk, type ServiceChunk } from "./service-chunks.ts";
import { deleteOp } from "./snapshot-delta.ts";

/**
 * A whole view as puts: the pieces that an audience shares, with the node's own items in place of some of theirs. Told in
 * order, or packed for a subscriber that understands it.
 *
 * `onOwn` is told what of it is the node's own, when the first frame is taken.
 *
 * *Cost:* the node's own endpoints, and a copy of the pieces that they are in; the pieces are made once, as long as
 * their Services are what they are. *Bound:* while the frames are taken, the node's own items.
 */
export function wholeView(
  snapshot: Snapshot,
  request: NodeViewRequest,
  target: ViewTarget,
  onOwn: (units: readonly OwnUnit[]) => void = () => undefined,
): Changes {
  return {
    isEmpty: false,
    *frames() {
      const units = ownUnits(snapshot, target);
      onOwn(units);
      if (request.wantsNode) for (const item of nodeItems(snapshot, request.nodeName)) yield item.frame;
      const { viewClass } = target;
      if (request.takesBatches) yield* packedFrames(snapshot, viewClass, units);
      else yield* orderedFrames(snapshot, viewClass, units);
    },
  };
}

/** An item that a node has in place of what its audience is told at the path: undefined for none. */
interface Replacement {
  readonly section: number;
  readonly path: string;
  readonly item: Item | undefined;
}

function replacements(own: OwnUnit): Replacement[] {
  const items = ownItems(own);
  const made = new Map<string, Replacement>();
  for (const item of items.hidden) made.set(`${item.section} ${item.path}`, { ...item, item: undefined });
  for (const item of items.own) made.set(`${item.section} ${item.path}`, { ...item, item });
  return [...made.values()];
}

/** Everybody's pieces, then what is otherwise for this node. */
function* packedFrames(snapshot: Snapshot, viewClass: ViewClass, units: readonly OwnUnit[]): Iterable<Frame> {
  for (const chunk of chunksByEndpoint(snapshot)) yield* packedChunk(chunk, viewClass);
  const all = units.flatMap(replacements);
  if (all.length === 0) return;
  // What moves to another section is deleted there before it is put here.
  const [drops, puts] = [all.filter(({ item }) => item === undefined), all.filter(({ item }) => item !== undefined)];
  const kept = new Set(puts.map(({ path }) => path));
  yield Buffer.concat([
    ...drops.filter(({ path }) => !kept.has(path)).map((one) => deleteOp(one).frame),
    ...puts.flatMap(({ item }) => (item === undefined ? [] : [item.frame])),
  ]);
}

function* orderedFrames(snapshot: Snapshot, viewClass: ViewClass, units: readonly OwnUnit[]): Iterable<Frame> {
  const bySection = Map.groupBy(units.flatMap(replacements), ({ section }) => section);
  for (const section of [serviceSection, podSection, anonymousSection]) {
    const chunks = section === serviceSection ? chunksByService(snapshot) : chunksByEndpoint(snapshot);
    const sorted = (bySection.get(section) ?? []).sort((a, b) => compareText(a.path, b.path));
    let next = 0;
    for (const [index, chunk] of chunks.entries()) {
      const first = next;
      const end = chunks[index + 1]?.start;
      while (next < sorted.length && (end === undefined || (sorted[next]?.path ?? "") < end)) next += 1;
      const frame = chunkFrame(chunk, section, viewClass, sorted.slice(first, next));
      if (frame.length > 0) yield frame;
    }
  }
}

function chunkFrame(chunk: ServiceChunk, section: number, viewClass: ViewClass, own: readonly Replacement[]): Frame {
  const ops = chunkOps(chunk, section, viewClass);
  if (own.length === 0) return ops.bytes;
  return Buffer.concat(spliceOps(ops, new Map(own.map(({ path, item }) => [path, item?.frame]))));
}
