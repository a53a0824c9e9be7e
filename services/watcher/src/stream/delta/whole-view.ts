import { compareText } from "@kpng/model/text-order.ts";
import type { Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { anonymousSection, nodeSection, podSection, serviceSection } from "../../items/node-view-items.ts";
import { type Overlay, overlaysOf } from "../../items/overlay.ts";
import { findItem } from "../../items/service-items.ts";
import type { ViewClass, ViewTarget } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { classDigestInSteps } from "./class-digests.ts";
import { encodeOwnInSteps } from "./encode-in-steps.ts";
import { spliceOps } from "./encoded-ops.ts";
import { type Changes, pause } from "./projection.ts";
import {
  chunkOps,
  chunksByEndpoint,
  chunksByService,
  encodeChunkInSteps,
  packedChunk,
  type ServiceChunk,
} from "./service-chunks.ts";
import { deleteOp } from "./snapshot-delta.ts";

/**
 * A whole view as puts: the chunks of Services that a class shares, with the node's own items in them. The puts are in
 * order, or compressed for a subscriber that understands batches.
 *
 * `nodeProjection` calls it for the first batch of a node that holds no view, and `resumeView` for a node whose view
 * differs too much. Calls `onOverlays` with the node's overlays when the first frame is read.
 *
 * *Cost:* the node's own endpoints and a copy of the chunks that they are in. Chunks are encoded once, and again when
 * one of their Services changes. *Bound:* the node's own items, until the last frame is read.
 *
 * Separate from `service-chunks.ts`, which encodes the shared part once for all subscribers.
 */
export function wholeView(
  snapshot: Snapshot,
  target: ViewTarget,
  onOverlays: (overlays: readonly Overlay[]) => void = () => undefined,
): Changes {
  return {
    isEmpty: false,
    *frames() {
      for (const _ of encodeOwnInSteps(snapshot, target)) yield pause;
      const overlays = overlaysOf(snapshot, target);
      onOverlays(overlays);
      const edits = Map.groupBy(overlays.flatMap(pathEdits), ({ section }) => section);
      for (const { item } of edits.get(nodeSection) ?? []) if (item !== undefined) yield item.frame;
      edits.delete(nodeSection);
      if (target.request.takesBatches) yield* packedFrames(snapshot, target.viewClass, [...edits.values()].flat());
      else yield* orderedFrames(snapshot, target.viewClass, edits);
      // The sync marker needs the digest of the class.
      if (target.viewClass.isExtended) for (const _ of classDigestInSteps(snapshot, target.viewClass)) yield pause;
    },
  };
}

/** The item that a node has at a path of a section instead of the shared one; undefined if it has none. */
interface PathEdit {
  readonly section: number;
  readonly path: string;
  readonly item: Item | undefined;
}

function pathEdits({ hidden, own }: Overlay): PathEdit[] {
  const removed = hidden.filter(({ section, path }) => findItem(own, path)?.section !== section);
  return [
    ...removed.map(({ section, path }) => ({ section, path, item: undefined })),
    ...own.map((item) => ({ section: item.section, path: item.path, item })),
  ];
}

/** The chunks of the class, and the node's edits after them. */
function* packedFrames(snapshot: Snapshot, viewClass: ViewClass, edits: readonly PathEdit[]): Iterable<Frame> {
  for (const chunk of chunksByEndpoint(snapshot)) {
    for (const _ of encodeChunkInSteps(chunk, viewClass, true)) yield pause;
    yield* packedChunk(chunk, viewClass);
  }
  if (edits.length === 0) return;
  const puts = edits.flatMap(({ item }) => (item === undefined ? [] : [item]));
  const kept = new Set(puts.map(({ path }) => path));
  // An item that moves to another section is only put: both sections have the same set on the wire.
  const deletes = edits.filter(({ path, item }) => item === undefined && !kept.has(path));
  yield Buffer.concat([...deletes.map((edit) => deleteOp(edit).frame), ...puts.map(({ frame }) => frame)]);
}

function* orderedFrames(
  snapshot: Snapshot,
  viewClass: ViewClass,
  edits: ReadonlyMap<number, readonly PathEdit[]>,
): Iterable<Frame> {
  for (const section of [serviceSection, podSection, anonymousSection]) {
    const chunks = section === serviceSection ? chunksByService(snapshot) : chunksByEndpoint(snapshot);
    const sorted = (edits.get(section) ?? []).toSorted((a, b) => compareText(a.path, b.path));
    let next = 0;
    for (const [index, chunk] of chunks.entries()) {
      const first = next;
      const end = chunks[index + 1]?.start;
      for (const _ of encodeChunkInSteps(chunk, viewClass, false)) yield pause;
      while (next < sorted.length && (end === undefined || (sorted[next]?.path ?? "") < end)) next += 1;
      const frame = chunkFrame(chunk, section, viewClass, sorted.slice(first, next));
      if (frame.length > 0) yield frame;
    }
  }
}

function chunkFrame(chunk: ServiceChunk, section: number, viewClass: ViewClass, edits: readonly PathEdit[]): Frame {
  const ops = chunkOps(chunk, section, viewClass);
  if (edits.length === 0) return ops.bytes;
  return Buffer.concat(spliceOps(ops, new Map(edits.map(({ path, item }) => [path, item?.frame]))));
}
