import { compareText } from "@kpng/model/text-order.ts";
import type { Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import {
  type Audience,
  anonymousSection,
  type LocalRequest,
  nodeItems,
  podSection,
  serviceSection,
} from "../../items/local-units.ts";
import { type OwnUnit, ownItems, ownUnits } from "../../items/own-units.ts";
import type { Place } from "../../items/place.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { deletion } from "./local-delta.ts";
import { type Piece, packedPiece, pieceStrip, piecesByEndpoint, piecesByService } from "./local-pieces.ts";
import type { Changes } from "./projection.ts";
import { editStrip } from "./strip.ts";

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
  request: LocalRequest,
  place: Place,
  onOwn: (units: readonly OwnUnit[]) => void = () => undefined,
): Changes {
  return {
    isEmpty: false,
    *frames() {
      const units = ownUnits(snapshot, place);
      onOwn(units);
      if (request.wantsNode) for (const item of nodeItems(snapshot, request.nodeName)) yield item.frame;
      const { audience } = place;
      if (request.takesBatches) yield* packedFrames(snapshot, audience, units);
      else yield* orderedFrames(snapshot, audience, units);
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
function* packedFrames(snapshot: Snapshot, audience: Audience, units: readonly OwnUnit[]): Iterable<Frame> {
  for (const piece of piecesByEndpoint(snapshot)) yield* packedPiece(piece, audience);
  const all = units.flatMap(replacements);
  if (all.length === 0) return;
  // What moves to another section is deleted there before it is put here.
  const [drops, puts] = [all.filter(({ item }) => item === undefined), all.filter(({ item }) => item !== undefined)];
  const kept = new Set(puts.map(({ path }) => path));
  yield Buffer.concat([
    ...drops.filter(({ path }) => !kept.has(path)).map((one) => deletion(one).frame),
    ...puts.flatMap(({ item }) => (item === undefined ? [] : [item.frame])),
  ]);
}

function* orderedFrames(snapshot: Snapshot, audience: Audience, units: readonly OwnUnit[]): Iterable<Frame> {
  const bySection = Map.groupBy(units.flatMap(replacements), ({ section }) => section);
  for (const section of [serviceSection, podSection, anonymousSection]) {
    const pieces = section === serviceSection ? piecesByService(snapshot) : piecesByEndpoint(snapshot);
    const sorted = (bySection.get(section) ?? []).sort((a, b) => compareText(a.path, b.path));
    let next = 0;
    for (const [index, piece] of pieces.entries()) {
      const first = next;
      const end = pieces[index + 1]?.start;
      while (next < sorted.length && (end === undefined || (sorted[next]?.path ?? "") < end)) next += 1;
      const frame = pieceFrame(piece, section, audience, sorted.slice(first, next));
      if (frame.length > 0) yield frame;
    }
  }
}

function pieceFrame(piece: Piece, section: number, audience: Audience, own: readonly Replacement[]): Frame {
  const strip = pieceStrip(piece, section, audience);
  if (own.length === 0) return strip.bytes;
  return Buffer.concat(editStrip(strip, new Map(own.map(({ path, item }) => [path, item?.frame]))));
}
