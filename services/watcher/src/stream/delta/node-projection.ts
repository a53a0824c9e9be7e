import type { Item } from "../../items/item.ts";
import { toggleDigests, uncachedDigestOf } from "../../items/item-digests.ts";
import { nodeViewOrder } from "../../items/node-view-items.ts";
import { nodeOverlay, type Overlay, overlayItems, overlaysOf, serviceOverlay } from "../../items/overlay.ts";
import { serviceStates } from "../../items/service-state.ts";
import { type NodeViewRequest, type ViewTarget, ViewTargetTracker } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { classDigest } from "./class-digests.ts";
import { diffInSteps, diffItems } from "./diff-items.ts";
import { nodeDelta } from "./node-delta.ts";
import { type OverlayDelta, overlayDeltas } from "./overlay-delta.ts";
import type { Changes, Projection } from "./projection.ts";
import { resumeView } from "./resume-view.ts";
import { snapshotDelta } from "./snapshot-delta.ts";
import { wholeView } from "./whole-view.ts";

/**
 * The view of one node, as whole view, as changes between two snapshots, or as difference to a view that the node
 * holds.
 *
 * `openLocalWatch` calls it for each request of a node, and the NodeViewService for a request without a stream.
 * Separate, because it only decides which of `wholeView`, `nodeDelta`, `diffItems` and `resumeView` computes a batch.
 * The whole cluster, for relays, is `globalProjection`.
 */
export function nodeProjection(request: NodeViewRequest): Required<Projection> {
  const targets = new ViewTargetTracker(request);
  const digest = new OverlaysDigest();
  const resetDigest = (snapshot: Snapshot, target: ViewTarget, overlays: readonly Overlay[]): void => {
    if (request.isExtended) digest.reset(snapshot, target, overlays);
  };
  return {
    whole(snapshot) {
      const target = targets.at(snapshot);
      return wholeView(snapshot, target, (overlays) => resetDigest(snapshot, target, overlays));
    },
    resume(snapshot, held) {
      const target = targets.at(snapshot);
      return resumeView(snapshot, target, held, (overlays) => resetDigest(snapshot, target, overlays));
    },
    between(before, snapshot) {
      const [old, target] = [targets.at(before), targets.at(snapshot)];
      if (old !== target) return betweenTargets([before, old], [snapshot, target]);
      const deltas = overlayDeltas(before, snapshot, target);
      digest.advance(before, snapshot, deltas);
      return nodeDelta(snapshotDelta(before, snapshot).forClass(target.viewClass), deltas, request.takesBatches);
    },
    items: (snapshot) => itemsOf(snapshot, snapshot.services.keys(), targets.at(snapshot)),
    digest(snapshot) {
      const target = targets.at(snapshot);
      return classDigest(snapshot, target.viewClass) ^ digest.at(snapshot, target);
    },
    order: nodeViewOrder,
  };
}

type Located = readonly [Snapshot, ViewTarget];

/** Compares all Services whose items may depend on the zone or the proxy name, and those that changed. */
function betweenTargets([before, old]: Located, [snapshot, target]: Located): Changes {
  const keys = new Set(snapshotDelta(before, snapshot).keys);
  for (const one of [before, snapshot]) {
    for (const [key, state] of serviceStates(one).entries()) if (state.own.hasZoneHints) keys.add(key);
  }
  const diff = keys.size > maxServicesPerStep ? diffInSteps : diffItems;
  return diff(itemsOf(before, keys, old), itemsOf(snapshot, keys, target), nodeViewOrder);
}

/** Services whose items are compared in one step; see PreparedSnapshots. */
const maxServicesPerStep = 256;

function* itemsOf(snapshot: Snapshot, keys: Iterable<string>, target: ViewTarget): Iterable<Item> {
  if (target.request.wantsNode) yield* nodeOverlay(snapshot, target).own;
  for (const key of keys) yield* overlayItems(serviceOverlay(snapshot, key, target, false));
}

/**
 * The exclusive or of the digests of all items in the overlays of one node, from snapshot to snapshot.
 *
 * *Bound:* a reference to the snapshot for which it was last computed.
 */
class OverlaysDigest {
  #snapshot: Snapshot | undefined;
  #target: ViewTarget | undefined;
  #digest = 0n;

  /** *Cost:* the node's own endpoints of the Services that changed; all of them, for another target. */
  at(snapshot: Snapshot, target: ViewTarget): bigint {
    const before = this.#snapshot;
    if (before === undefined || this.#target !== target) this.reset(snapshot, target, overlaysOf(snapshot, target));
    else if (before !== snapshot) this.advance(before, snapshot, overlayDeltas(before, snapshot, target));
    return this.#digest;
  }

  reset(snapshot: Snapshot, target: ViewTarget, overlays: readonly Overlay[]): void {
    this.#snapshot = snapshot;
    this.#target = target;
    this.#digest = overlays.reduce(
      (digest, { hidden, own }) => toggleDigests(toggleDigests(digest, hidden), own, uncachedDigestOf),
      0n,
    );
  }

  /** Does nothing unless the digest is that of `before`. */
  advance(before: Snapshot, snapshot: Snapshot, deltas: readonly OverlayDelta[]): void {
    if (this.#snapshot !== before) return;
    this.#snapshot = snapshot;
    this.#digest = deltas.reduce((digest, { changed }) => toggleDigests(digest, changed), this.#digest);
  }
}
