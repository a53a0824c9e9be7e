import { compareText, getOrMake, lowerBound } from "@kpng/model/collections.ts";
import { type Frame, packFrames } from "../../items/frames.ts";
import {
  anonymousSection,
  deleteFrameOf,
  type Item,
  nodeSection,
  podSection,
  serviceSection,
} from "../../items/item.ts";
import { type Overlay, overlaysOf, ownServices } from "../../items/overlay.ts";
import { editItems } from "../../items/service-items.ts";
import { type ServiceState, serviceStates } from "../../items/service-state.ts";
import { type ViewClass, type ViewTarget, viewClassOf } from "../../items/view-target.ts";
import { changedServices, Derived } from "../../store/derived.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { sameZone } from "../../view/class-choice.ts";
import { encodeWithPauses, indexWithPauses, statesWithPauses } from "./class-index.ts";
import { withPauses } from "./projection.ts";

/**
 * Yields a whole view, which consists of the chunks of Services that a class shares and the overlays of the node. For
 * a subscriber that understands batches, the chunks are compressed, and the operations of the overlays follow them.
 * Calls `onOverlays` with these overlays.
 *
 * *Cost:* proportional to the node's own endpoints. Chunks are encoded once, and again when one of their Services
 * changes.
 */
export function* wholeView(
  snapshot: Snapshot,
  target: ViewTarget,
  onOverlays: (overlays: readonly Overlay[]) => void = () => undefined,
): Generator<Frame, void> {
  const { viewClass, request } = target;
  yield* statesWithPauses(snapshot);
  yield* withPauses(serviceChunks.steps(snapshot));
  // Otherwise, `overlaysOf` would encode all Services with own endpoints in one piece.
  const states = serviceStates.at(snapshot);
  const ownStates = [...ownServices(snapshot, target.node.name)].map((key) => states.get(key));
  yield* encodeWithPauses(
    ownStates.filter((state) => state !== undefined),
    viewClass,
  );
  const overlays = overlaysOf(snapshot, target);
  onOverlays(overlays);
  const added = overlays.flatMap((overlay) => overlay.added);
  for (const { section, frame } of added) if (section === nodeSection) yield frame;
  if (request.takesBatches) {
    yield* packedFrames(snapshot, viewClass);
    yield* corrections(overlays);
  } else yield* plainFrames(snapshot, target, overlays);
  // The sync marker needs the digest of the class.
  if (viewClass.isExtended) yield* indexWithPauses(snapshot, viewClass);
}

/** The sections of a view in KPNG's order. */
const plainSections = [serviceSection, podSection, anonymousSection];

/**
 * Yields the chunks in KPNG's order, with the node's own items in their places. Without the encoded chunks, a view of
 * 50 000 endpoints would take 100 ms instead of 10.
 */
function* plainFrames(
  snapshot: Snapshot,
  { viewClass, node }: ViewTarget,
  overlays: readonly Overlay[],
): Iterable<Frame> {
  const chunks = serviceChunks.at(snapshot);
  const itemsByChunk = new Map<number, { readonly index: number; readonly items: readonly Item[] }[]>();
  // `overlaysOf` returns the overlays in the same order.
  for (const [at, key] of [...ownServices(snapshot, node.name)].entries()) {
    const number = chunkIndexOf(chunks, key);
    const index = chunks[number]?.services.findIndex((service) => service.key === key) ?? -1;
    const overlay = overlays[at];
    if (index < 0 || overlay === undefined) continue;
    getOrMake(itemsByChunk, number, () => []).push({
      index,
      items: editItems(overlay.shared, overlay.removed, overlay.added),
    });
  }
  for (const services of itemsByChunk.values()) services.sort((a, b) => a.index - b.index);
  for (const section of plainSections) {
    for (const [number, chunk] of chunks.entries()) {
      const key = `${section} ${chunkClass(chunk, viewClass)}`;
      if (!chunk.plain.has(key)) yield* encodeChunk(chunk, viewClass);
      const { bytes, ends } = getOrMake(chunk.plain, key, () => plainSection(chunk, section, viewClass));
      const slices: Frame[] = [];
      let from = 0;
      for (const { index, items } of itemsByChunk.get(number) ?? []) {
        slices.push(bytes.subarray(from, ends[index - 1] ?? 0), ...framesIn(items, section));
        from = ends[index] ?? 0;
      }
      const frame = from === 0 && slices.length === 0 ? bytes : Buffer.concat([...slices, bytes.subarray(from)]);
      if (frame.length > 0) yield frame;
    }
  }
}

/** The puts of one section of a chunk, for subscribers that take no batches. */
interface PlainSection {
  readonly bytes: Frame;
  /** The offset in `bytes` at which each Service ends. */
  readonly ends: readonly number[];
}

function plainSection(chunk: ServiceChunk, section: number, viewClass: ViewClass): PlainSection {
  const frames: Frame[] = [];
  let length = 0;
  const ends = chunk.services.map(({ state }) => {
    for (const frame of framesIn(itemsOf(state, viewClass), section)) {
      frames.push(frame);
      length += frame.length;
    }
    return length;
  });
  return { bytes: Buffer.concat(frames, length), ends };
}

function framesIn(items: readonly Item[], section: number): Frame[] {
  return items.filter((item) => item.section === section).map(({ frame }) => frame);
}

/** Yields the compressed chunks of the class. */
function* packedFrames(snapshot: Snapshot, viewClass: ViewClass): Iterable<Frame> {
  for (const chunk of serviceChunks.at(snapshot)) {
    if (!chunk.packed.has(chunkClass(chunk, viewClass))) yield* encodeChunk(chunk, viewClass);
    yield* packedChunk(chunk, viewClass);
  }
}

/** Yields the operations that turn the view of the class into the view of the node. */
function* corrections(overlays: readonly Overlay[]): Iterable<Frame> {
  const added = overlays.flatMap((overlay) => overlay.added).filter(({ section }) => section !== nodeSection);
  const replaced = new Set(added.map(({ path }) => path));
  // An item that moves to another section is put but not deleted, because both sections have the same set on the wire.
  const deleted = overlays.flatMap(({ removed }) => removed).filter(({ path }) => !replaced.has(path));
  const ops = [...deleted.map(deleteFrameOf), ...added.map(({ frame }) => frame)];
  if (ops.length > 0) yield Buffer.concat(ops);
}

/**
 * Consecutive Services whose items are encoded together. Snapshots share a chunk, and everything that was encoded for
 * it, as long as none of these Services changes.
 */
interface ServiceChunk {
  /** Key of the first Service. */
  readonly start: string;
  readonly services: readonly ChunkService[];
  /** The zones that hints in its Services name. */
  readonly hintedZones: ReadonlySet<string>;
  /** Keyed by section and class. */
  readonly plain: Map<string, PlainSection>;
  /** Keyed by class. */
  readonly packed: Map<string, readonly Frame[]>;
}

interface ChunkService {
  readonly key: string;
  readonly state: ServiceState;
}

/** Number of Services in a new chunk. A chunk that exceeds twice this number is split; small chunks are not merged. */
const servicesPerChunk = 64;

/** The chunks, in the order of their Services' keys. *Cost:* proportional to the chunks with changed Services. */
const serviceChunks = new Derived<readonly ServiceChunk[]>([], function* (chunks, before, snapshot) {
  const states = serviceStates.at(snapshot);
  const changes = new Map<number, Set<string>>();
  for (const key of changedServices(before, snapshot))
    getOrMake(changes, chunkIndexOf(chunks, key), () => new Set()).add(key);
  const next: ServiceChunk[] = [];
  // Without chunks, `chunkIndexOf` returns 0 for every Service.
  for (const [index, chunk] of (chunks.length === 0 ? [noChunk] : chunks).entries()) {
    const changed = changes.get(index);
    if (changed === undefined) {
      next.push(chunk);
      continue;
    }
    const services = chunk.services.filter(({ key }) => !changed.has(key));
    for (const key of changed) {
      const state = states.get(key);
      if (state !== undefined) services.push({ key, state });
    }
    yield;
    services.sort((a, b) => compareText(a.key, b.key));
    for (const part of split(services)) {
      next.push(part);
      yield;
    }
  }
  return next;
});

/** Returns the index of the chunk that a Service belongs to. */
function chunkIndexOf(chunks: readonly ServiceChunk[], key: string): number {
  return Math.max(0, lowerBound(chunks.length, (index) => (chunks[index]?.start ?? "") <= key) - 1);
}

function* split(services: readonly ChunkService[]): Iterable<ServiceChunk> {
  const isLarge = services.length > 2 * servicesPerChunk;
  const size = isLarge ? servicesPerChunk : services.length;
  for (let first = 0; first < services.length; first += size) yield makeChunk(services.slice(first, first + size));
}

function makeChunk(services: readonly ChunkService[]): ServiceChunk {
  const hintedZones = new Set(services.flatMap(({ state }) => [...state.ownEndpoints.hintedZones]));
  return { start: services[0]?.key ?? "", services, hintedZones, plain: new Map(), packed: new Map() };
}

const noChunk = makeChunk([]);

function encodeChunk({ services }: ServiceChunk, viewClass: ViewClass): Iterable<Frame> {
  return encodeWithPauses(
    services.map(({ state }) => state),
    viewClass,
  );
}

/** Returns all puts of a chunk, as compressed batches. */
function packedChunk(chunk: ServiceChunk, viewClass: ViewClass): readonly Frame[] {
  return getOrMake(chunk.packed, chunkClass(chunk, viewClass), () =>
    packFrames(chunk.services.flatMap(({ state }) => itemsOf(state, viewClass).map(({ frame }) => frame))),
  );
}

function itemsOf(state: ServiceState, viewClass: ViewClass): readonly Item[] {
  return state.service.proxyName === viewClass.proxyName ? state.sharedItems(viewClass) : [];
}

/** Returns the key of a class in the caches of a chunk. All zones that no hint names share the encoded frames. */
function chunkClass(chunk: ServiceChunk, viewClass: ViewClass): string {
  return viewClassOf(viewClass, sameZone(chunk, viewClass.zone)).key;
}
