import type { Item } from "../../items/item.ts";
import { nodeOverlay, type Overlay, serviceOverlay } from "../../items/overlay.ts";
import { diffSorted } from "../../items/service-items.ts";
import type { ViewTarget } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { snapshotDelta } from "./snapshot-delta.ts";

/**
 * Returns the overlays of a node that differ between two snapshots in which its view target is the same. An overlay is
 * the difference between the items of a Service that a class of nodes shares and those of one node.
 *
 * *Cost:* the node's own endpoints of the Services of which one of them changed, or the use of all of them; next to
 * nothing for other nodes.
 *
 * `nodeProjection` calls it, passes the result to `nodeDelta`, and computes the digest of the view from it. Separate
 * from `nodeDelta`, because the digest needs the same result.
 */
export function overlayDeltas(before: Snapshot, snapshot: Snapshot, target: ViewTarget): readonly OverlayDelta[] {
  const { node, request } = target;
  const keys = snapshotDelta(before, snapshot).forClass(target.viewClass).keysByNode.get(node.name);
  const hasNode = request.wantsNode && isNodeChanged(before, snapshot, node.name);
  if (keys === undefined && !hasNode) return noDeltas;
  const deltas: OverlayDelta[] = [];
  const add = (old: Overlay, now: Overlay): void => {
    const changed = [diffSorted(old.hidden, now.hidden), diffSorted(old.own, now.own)].flatMap(
      ({ puts, deletes, replaced }) => [...puts, ...deletes, ...replaced],
    );
    if (changed.length > 0) deltas.push({ before: old, after: now, changed });
  };
  for (const key of keys ?? [])
    add(serviceOverlay(before, key, target, true), serviceOverlay(snapshot, key, target, true));
  if (hasNode) add(nodeOverlay(before, target), nodeOverlay(snapshot, target));
  return deltas;
}

/** The change of one overlay between two snapshots. */
export interface OverlayDelta {
  readonly before: Overlay;
  readonly after: Overlay;
  /** Items that one of the two overlays has and the other does not. */
  readonly changed: readonly Item[];
}

const noDeltas: readonly OverlayDelta[] = [];

function isNodeChanged(before: Snapshot, snapshot: Snapshot, nodeName: string): boolean {
  if (before.serviceCIDRs !== snapshot.serviceCIDRs) return true;
  return before.nodes !== snapshot.nodes && before.nodes.get(nodeName) !== snapshot.nodes.get(nodeName);
}
