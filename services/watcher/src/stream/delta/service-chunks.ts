import { lowerBound } from "@kpng/model/binary-search.ts";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import { compareText } from "@kpng/model/text-order.ts";
import type { Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { serviceSection } from "../../items/node-view-items.ts";
import { type ServiceState, serviceStates } from "../../items/service-state.ts";
import { type ViewClass, viewClassOf } from "../../items/view-target.ts";
import { changedServices, derived } from "../../store/derived.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { sameZone } from "../../view/class-choice.ts";
import { encodeInSteps } from "./encode-in-steps.ts";
import { type EncodedOps, encodeOps } from "./encoded-ops.ts";
import { packFrames } from "./packed-frames.ts";

/**
 * Consecutive Services whose items are encoded together. All snapshots in which none of them changes share the chunk,
 * and everything that was encoded for it.
 *
 * `wholeView` reads the chunks, and `prepareViews` encodes them before the first node connects. Separate from both,
 * because the chunks live from snapshot to snapshot and serve all subscribers.
 */
export interface ServiceChunk {
  /** Where the items of the first Service begin: no item of the chunk has a smaller path. */
  readonly start: string;
  readonly services: readonly ChunkService[];
  /** The zones that hints of its Services name. */
  readonly hintedZones: ReadonlySet<string>;
  /** By section and class. */
  readonly ops: Map<string, EncodedOps>;
  /** By class. */
  readonly packed: Map<string, readonly Frame[]>;
}

/** Services in a new chunk. A chunk that grows to twice as many is split. */
const servicesPerChunk = 64;

interface ChunkService {
  readonly key: string;
  readonly state: ServiceState;
  /** Determines the order of the chunks: the path of the Service, or the common prefix of its endpoints' paths. */
  readonly start: string;
}

/** The Services in the order of their own paths. *Cost:* the chunks with Services that changed. */
export const chunksByService = makeChunks((key) => key);

/** The Services in the order of their endpoints' paths: "a-b" comes after "a", but "a-b/pod" before "a/pod". */
export const chunksByEndpoint = makeChunks((key) => `${key}/`);

function makeChunks(startOf: (key: string) => string): (snapshot: Snapshot) => readonly ServiceChunk[] {
  return derived<readonly ServiceChunk[]>([], (chunks, before, snapshot) => {
    const changes = new Map<number, string[]>();
    for (const key of changedServices(before, snapshot)) {
      getOrMake(changes, chunkIndexOf(chunks, startOf(key)), () => []).push(key);
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

/** Returns the index of the chunk that a path belongs to. */
function chunkIndexOf(chunks: readonly ServiceChunk[], path: string): number {
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
      hintedZones: new Set(some.flatMap(({ state }) => [...state.own.hintedZones])),
      ops: new Map(),
      packed: new Map(),
    });
  }
  return chunks;
}

/**
 * Encodes the items of a chunk in steps, and yields between them. Does nothing if the result is known already: of
 * `packedChunk` with `isPacked`, otherwise of `chunkOps`.
 */
export function encodeChunkInSteps(chunk: ServiceChunk, viewClass: ViewClass, isPacked: boolean): Iterable<undefined> {
  const key = chunkClass(chunk, viewClass);
  const isDone = isPacked ? chunk.packed.has(key) : chunk.ops.has(`${serviceSection} ${key}`);
  if (isDone) return [];
  return encodeInSteps(
    chunk.services.map(({ state }) => state),
    viewClass,
  );
}

/** Puts of one section of a chunk, for subscribers that take no batches. */
export function chunkOps(chunk: ServiceChunk, section: number, viewClass: ViewClass): EncodedOps {
  return getOrMake(chunk.ops, `${section} ${chunkClass(chunk, viewClass)}`, () =>
    encodeOps(chunkItems(chunk, viewClass).filter((item) => item.section === section)),
  );
}

/** Puts of all sections of a chunk, as compressed batches. */
export function packedChunk(chunk: ServiceChunk, viewClass: ViewClass): readonly Frame[] {
  return getOrMake(chunk.packed, chunkClass(chunk, viewClass), () =>
    packFrames(chunkItems(chunk, viewClass).map(({ frame }) => frame)),
  );
}

function chunkItems({ services }: ServiceChunk, viewClass: ViewClass): Item[] {
  return services.flatMap(({ state }) =>
    state.service.proxyName === viewClass.proxyName ? [...state.sharedItems(viewClass).items] : [],
  );
}

/** Returns the key of a class in the caches of a chunk. All zones that no hint names share what is encoded. */
function chunkClass(chunk: ServiceChunk, viewClass: ViewClass): string {
  return viewClassOf(viewClass, sameZone(chunk, viewClass.zone)).key;
}
