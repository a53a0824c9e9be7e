import { getOrMake } from "@kpng/model/get-or-make.ts";
import { compareText } from "@kpng/model/text-order.ts";
import type { Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { type Audience, audienceOf } from "../../items/local-units.ts";
import { type ServiceState, serviceStates } from "../../items/service-state.ts";
import { classUnit } from "../../items/service-units.ts";
import { changedServices, derived } from "../../store/derived.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { packFrames } from "./packed-frames.ts";
import { makeStrip, type Strip } from "./strip.ts";

/** Services in a piece that is made anew; one that has grown to twice as many is split. */
const servicesPerPiece = 64;

/**
 * Services whose items are told together. What is made of them is kept as long as they are what they are, through all
 * snapshots.
 */
export interface Piece {
  /** Where its first Service's items begin: no item of it has a smaller path. */
  readonly start: string;
  readonly services: readonly PieceService[];
  /** Of its Services. */
  readonly proxyNames: ReadonlySet<string>;
  readonly hasZoneHints: boolean;
  /** By section and audience. */
  readonly strips: Map<string, Strip>;
  /** By audience. */
  readonly packed: Map<string, readonly Frame[]>;
}

interface PieceService {
  readonly key: string;
  readonly state: ServiceState;
  /** Orders the pieces: the Service's path, or where the paths of its endpoints begin. */
  readonly start: string;
}

/** The Services in the order of their own paths. *Cost:* the pieces in which something changed. */
export const piecesByService = makePieces((key) => key);

/** The Services in the order of their endpoints' paths: "a-b" comes after "a", but "a-b/pod" before "a/pod". */
export const piecesByEndpoint = makePieces((key) => `${key}/`);

function makePieces(startOf: (key: string) => string): (snapshot: Snapshot) => readonly Piece[] {
  return derived<readonly Piece[]>([], (pieces, before, snapshot) => {
    const changes = new Map<number, string[]>();
    for (const key of changedServices(before, snapshot)) {
      getOrMake(changes, placeOf(pieces, startOf(key)), () => []).push(key);
    }
    const remade = (piece: Piece | undefined, keys: readonly string[] | undefined): readonly Piece[] => {
      if (keys === undefined) return piece === undefined ? [] : [piece];
      const changed = new Set(keys);
      const services = piece?.services.filter(({ key }) => !changed.has(key)) ?? [];
      for (const key of keys) {
        const state = serviceStates(snapshot).get(key);
        if (state !== undefined) services.push({ key, state, start: startOf(key) });
      }
      return split(services.sort((a, b) => compareText(a.start, b.start)));
    };
    if (pieces.length === 0) return remade(undefined, changes.get(0));
    return pieces.flatMap((piece, index) => remade(piece, changes.get(index)));
  });
}

/** The piece that a path belongs to. */
function placeOf(pieces: readonly Piece[], path: string): number {
  let [low, high] = [0, pieces.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((pieces[middle]?.start ?? "") <= path) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

function split(services: readonly PieceService[]): Piece[] {
  const isLarge = services.length > 2 * servicesPerPiece;
  const size = isLarge ? servicesPerPiece : services.length;
  const pieces: Piece[] = [];
  for (let first = 0; first < services.length; first += size) {
    const some = services.slice(first, first + size);
    pieces.push({
      start: some[0]?.start ?? "",
      services: some,
      proxyNames: new Set(some.map(({ state }) => state.service.proxyName)),
      hasZoneHints: some.some(({ state }) => state.own.hasZoneHints),
      strips: new Map(),
      packed: new Map(),
    });
  }
  return pieces;
}

/** The items of a section that an audience is told of a piece, in their order. */
export function pieceStrip(piece: Piece, section: number, audience: Audience): Strip {
  if (!piece.proxyNames.has(audience.proxyName)) return emptyStrip;
  return getOrMake(piece.strips, `${section} ${pieceAudience(piece, audience)}`, () =>
    makeStrip(pieceItems(piece, audience).filter((item) => item.section === section)),
  );
}

/** All items that an audience is told of a piece, packed. */
export function packedPiece(piece: Piece, audience: Audience): readonly Frame[] {
  // There is no end of the names that subscribers can make up: only for those that a Service has is anything kept.
  if (!piece.proxyNames.has(audience.proxyName)) return [];
  return getOrMake(piece.packed, pieceAudience(piece, audience), () =>
    packFrames(pieceItems(piece, audience).map(({ frame }) => frame)),
  );
}

const emptyStrip = makeStrip([]);

function pieceItems({ services }: Piece, audience: Audience): Item[] {
  return services.flatMap(({ state }) =>
    state.service.proxyName === audience.proxyName ? classUnit(state, audience).items : [],
  );
}

/** Zones that are told the same share what is made. */
function pieceAudience({ hasZoneHints }: Piece, audience: Audience): string {
  return hasZoneHints ? audience.key : audienceOf(audience, "").key;
}
