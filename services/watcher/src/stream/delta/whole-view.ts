import { compareText, getOrMake, lowerBound } from "@kpng/model/collections.ts";
import type { Frame } from "../../items/frames.ts";
import { anonymousSection, type Item, nodeSection, podSection, serviceSection } from "../../items/item.ts";
import { type Overlay, overlaysOf, ownServices } from "../../items/overlay.ts";
import { deletedItems } from "../../items/service-items.ts";
import { type ServiceState, serviceStates } from "../../items/service-state.ts";
import { type ViewClass, type ViewTarget, viewClassOf } from "../../items/view-target.ts";
import { changedServices, derived } from "../../store/derived.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { sameZone } from "../../view/class-choice.ts";
import { encodeInSlices, indexInSlices } from "./class-index.ts";
import { deleteOp, type EncodedOps, encodeOps, packFrames, spliceOps } from "./encoded-ops.ts";
import type { Changes } from "./projection.ts";

/**
 * A whole view as puts: the chunks of Services that a class shares, with the node's own items in them. The puts are in
 * KPNG's order, or compressed for a subscriber that understands batches. Calls `onOverlays` with the node's overlays
 * when the first frame is read.
 *
 * *Cost:* the node's own endpoints and a copy of the chunks that they are in. Chunks are encoded once, and again when
 * one of their Services changes. *Bound:* the node's own items, until the last frame is read.
 */
export function wholeView(
  snapshot: Snapshot,
  target: ViewTarget,
  onOverlays: (overlays: readonly Overlay[]) => void = () => undefined,
): Changes {
  const { viewClass, request } = target;
  return {
    isEmpty: false,
    *frames() {
      const states = serviceStates(snapshot);
      const own = [...ownServices(snapshot, target.node.name)].map((key) => states.get(key));
      yield* encodeInSlices(
        own.filter((state) => state !== undefined),
        viewClass,
      );
      const overlays = overlaysOf(snapshot, target);
      onOverlays(overlays);
      const added = overlays.flatMap((overlay) => overlay.added);
      for (const { section, frame } of added) if (section === nodeSection) yield frame;
      if (request.takesBatches) yield* packedFrames(snapshot, viewClass, overlays);
      else yield* orderedFrames(snapshot, viewClass, overlays);
      // The sync marker needs the digest of the class.
      if (viewClass.isExtended) yield* indexInSlices(snapshot, viewClass);
    },
  };
}

/** The chunks of the class, and the node's own items after them. */
function* packedFrames(snapshot: Snapshot, viewClass: ViewClass, overlays: readonly Overlay[]): Iterable<Frame> {
  for (const chunk of chunksByEndpoint(snapshot)) {
    if (!chunk.packed.has(chunkClass(chunk, viewClass))) yield* encodeChunk(chunk, viewClass);
    yield* packedChunk(chunk, viewClass);
  }
  const added = overlays.flatMap((overlay) => overlay.added).filter(({ section }) => section !== nodeSection);
  const replaced = new Set(added.map(({ path }) => path));
  // An item that moves to another section is only put: both sections have the same set on the wire.
  const deleted = overlays.flatMap(({ removed }) => removed).filter(({ path }) => !replaced.has(path));
  const ops = [...deleted.map((item) => deleteOp(item).frame), ...added.map(({ frame }) => frame)];
  if (ops.length > 0) yield Buffer.concat(ops);
}

/** The chunks in KPNG's order, with the node's own items in their place. */
function* orderedFrames(snapshot: Snapshot, viewClass: ViewClass, overlays: readonly Overlay[]): Iterable<Frame> {
  const edits = overlays.flatMap((overlay) => [
    ...deletedItems(overlay).map((item) => ({ item, frame: undefined })),
    ...overlay.added.map((item) => ({ item, frame: item.frame })),
  ]);
  for (const section of [serviceSection, podSection, anonymousSection]) {
    const chunks = section === serviceSection ? chunksByService(snapshot) : chunksByEndpoint(snapshot);
    const sorted = edits
      .filter(({ item }) => item.section === section)
      .sort((a, b) => compareText(a.item.path, b.item.path));
    let next = 0;
    for (const [index, chunk] of chunks.entries()) {
      const first = next;
      const end = chunks[index + 1]?.start;
      if (!chunk.ops.has(`${section} ${chunkClass(chunk, viewClass)}`)) yield* encodeChunk(chunk, viewClass);
      while (next < sorted.length && (end === undefined || (sorted[next]?.item.path ?? "") < end)) next += 1;
      const some = sorted.slice(first, next).map(({ item, frame }) => [item.path, frame] as const);
      const ops = chunkOps(chunk, section, viewClass);
      const bytes = some.length === 0 ? ops.bytes : Buffer.concat(spliceOps(ops, new Map(some)));
      if (bytes.length > 0) yield bytes;
    }
  }
}

/**
 * Consecutive Services whose items are encoded together. All snapshots in which none of them changes share the chunk,
 * and everything that was encoded for it.
 */
interface ServiceChunk {
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

interface ChunkService {
  readonly key: string;
  readonly state: ServiceState;
  /** Determines the order of the chunks: the path of the Service, or the common prefix of its endpoints' paths. */
  readonly start: string;
}

/** Services in a new chunk. A chunk that grows to twice as many is split. */
const servicesPerChunk = 64;

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

function encodeChunk({ services }: ServiceChunk, viewClass: ViewClass): Iterable<Frame> {
  return encodeInSlices(
    services.map(({ state }) => state),
    viewClass,
  );
}

/** Puts of one section of a chunk, for subscribers that take no batches. */
function chunkOps(chunk: ServiceChunk, section: number, viewClass: ViewClass): EncodedOps {
  return getOrMake(chunk.ops, `${section} ${chunkClass(chunk, viewClass)}`, () =>
    encodeOps(chunkItems(chunk, viewClass).filter((item) => item.section === section)),
  );
}

/** Puts of all sections of a chunk, as compressed batches. */
function packedChunk(chunk: ServiceChunk, viewClass: ViewClass): readonly Frame[] {
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

/** Encodes and compresses all chunks, and the index of a class, before the first node asks for them. */
export function* prepareClass(snapshot: Snapshot, viewClass: ViewClass): Iterable<Frame> {
  yield* packedFrames(snapshot, viewClass, []);
  yield* indexInSlices(snapshot, viewClass);
}
