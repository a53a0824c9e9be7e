import { lowerBound } from "@kpng/model/binary-search.ts";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import { compareText } from "@kpng/model/text-order.ts";
import type { Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { type ViewClass, viewClassOf } from "../../items/node-view-items.ts";
import { type ServiceState, serviceStates } from "../../items/service-state.ts";
import { classItems } from "../../items/service-units.ts";
import { changedServices, derived } from "../../store/derived.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { type EncodedOps, encodeOps } from "./encoded-ops.ts";
import { packFrames } from "./packed-frames.ts";

/** Services in a piece that is made anew; one that has grown to twice as many is split. */
const servicesPerChunk = 64;

/**
 * Services whose items are told together. What is made of them is kept as long as they are what they are, through all
 * snapshots.
 */
export interface ServiceChunk {
  /** Where its first Service's items begin: no item of it has a smaller path. */
  readonly start: string;
  readonly services: readonly ChunkService[];
  /** Of its Services. */
  readonly proxyNames: ReadonlySet<string>;
  readonly hasZoneHints: boolean;
  /** By section and audience. */
  readonly opsByKey: Map<string, EncodedOps>;
  /** By audience. */
  readonly packed: Map<string, readonly Frame[]>;
}

interface ChunkService {
  readonly key: string;
  readonly state: ServiceState;
  /** Orders the pieces: the Service's path, or where the paths of its endpoints begin. */
  readonly start: string;
}

/** The Services in the order of their own paths. *Cost:* the pieces in which something changed. */
export const chunksByService = makeChunks((key) => key);

/** The Services in the order of their endpoints' paths: "a-b" comes after "a", but "a-b/pod" before "a/pod". */
export const chunksByEndpoint = makeChunks((key) => `${key}/`);

function makeChunks(startOf: (key: string) => string): (snapshot: Snapshot) => readonly ServiceChunk[] {
  return derived<readonly ServiceChunk[]>([], (chunks, before, snapshot) => {
    const changes = new Map<number, string[]>();
    for (const key of changedServices(before, snapshot)) {
      getOrMake(changes, placeOf(chunks, startOf(key)), () => []).push(key);
    }
    const remade = (chunk: ServiceChunk | undefined, keys: readonly string[] | undefined): readonly ServiceChunk[] => {
      if (keys === undefined) return chunk === undefined ? [] : [chunk];
      const changed = new Set(keys);
      const services = chunk?.services.filter(({ key }) => !changed.has(key)) ?? [];
      for (const key of keys) {
        const state = serviceStates(snapshot).get(key);
        if (state !== undefined) services.push({ key, state, start: startOf(key) });
      }
      return split(services.sort((a, b) => compareText(a.start, b.start)));
    };
    if (chunks.length === 0) return remade(undefined, changes.get(0));
    return chunks.flatMap((chunk, index) => remade(chunk, changes.get(index)));
  });
}

/** The piece that a path belongs to. */
function placeOf(chunks: readonly ServiceChunk[], path: string): number {
  return Math.max(0, lowerBound(chunks.length, (index) => (chunks[index]?.start ?? "") <= path) - 1);
}

function split(services: readonly ChunkService[]): ServiceChunk[] {
  const isLarge = services.length > 2 * servicesPerChunk;
  const size = isLarge ? servicesPerChunk : services.length;
  const chunks: ServiceChunk[] = [];
  for (let first = 0; first < services.length; first += size) {
    const some = services.slice(first, first + size);
    chunks.push({
      start: some[0]?.start ?? "",
      services: some,
      proxyNames: new Set(some.map(({ state }) => state.service.proxyName)),
      hasZoneHints: some.some(({ state }) => state.own.hasZoneHints),
      opsByKey: new Map(),
      packed: new Map(),
    });
  }
  return chunks;
}

/** The items of a section that an audience is told of a piece, in their order. */
export function chunkOps(chunk: ServiceChunk, section: number, viewClass: ViewClass): EncodedOps {
  if (!chunk.proxyNames.has(viewClass.proxyName)) return noOps;
  return getOrMake(chunk.opsByKey, `${section} ${chunkClass(chunk, viewClass)}`, () =>
    encodeOps(chunkItems(chunk, viewClass).filter((item) => item.section === section)),
  );
}

/** All items that an audience is told of a piece, packed. */
export function packedChunk(chunk: ServiceChunk, viewClass: ViewClass): readonly Frame[] {
  // There is no end of the names that subscribers can make up: only for those that a Service has is anything kept.
  if (!chunk.proxyNames.has(viewClass.proxyName)) return [];
  return getOrMake(chunk.packed, chunkClass(chunk, viewClass), () =>
    packFrames(chunkItems(chunk, viewClass).map(({ frame }) => frame)),
  );
}

const noOps = encodeOps([]);

function chunkItems({ services }: ServiceChunk, viewClass: ViewClass): Item[] {
  return services.flatMap(({ state }) =>
    state.service.proxyName === viewClass.proxyName ? classItems(state, viewClass).items : [],
  );
}

/** Zones that are told the same share what is made. */
function chunkClass({ hasZoneHints }: ServiceChunk, viewClass: ViewClass): string {
  return hasZoneHints ? viewClass.key : viewClassOf(viewClass, "").key;
}
