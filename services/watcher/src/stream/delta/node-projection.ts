import type { Item } from "../../items/item.ts";
import { type NodeViewRequest, nodeItems, nodeViewOrder } from "../../items/node-view-items.ts";
import { serviceStates } from "../../items/service-state.ts";
import { itemsOfUnit, nodeUnit, serviceFor } from "../../items/service-units.ts";
import { type ViewTarget, ViewTargetTracker } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { diffItems } from "./diff-items.ts";
import { nodeDelta } from "./node-delta.ts";
import type { Changes, Projection } from "./projection.ts";
import { snapshotDelta } from "./snapshot-delta.ts";
import { ViewDigest } from "./view-digest.ts";
import { wholeView } from "./whole-view.ts";

/** The view of one node as a stream's items. */
export function nodeProjection(request: NodeViewRequest): Projection {
  const targets = new ViewTargetTracker(request);
  const digest = new ViewDigest(request);
  return {
    whole: (snapshot) =>
      wholeView(snapshot, request, targets.at(snapshot), (units) => {
        if (request.isExtended) digest.learn(snapshot, targets.at(snapshot), units);
      }),
    between(before, snapshot) {
      const old = targets.at(before);
      const target = targets.at(snapshot);
      if (old === target) return nodeDelta(before, snapshot, request, target, snapshotDelta(before, snapshot));
      return afterMove([before, old], [snapshot, target], request);
    },
    items: (snapshot) => itemsOf(snapshot, snapshot.services.keys(), request, targets.at(snapshot)),
    digest: (snapshot) => digest.at(snapshot, targets.at(snapshot)),
    order: nodeViewOrder,
  };
}

type Situation = readonly [Snapshot, ViewTarget];

/** In another zone endpoints are chosen anew where hints for zones are. */
function afterMove([before, old]: Situation, [snapshot, target]: Situation, request: NodeViewRequest): Changes {
  const keys = new Set(snapshotDelta(before, snapshot).keys);
  for (const one of [before, snapshot]) {
    for (const [key, state] of serviceStates(one).entries()) if (state.own.hasZoneHints) keys.add(key);
  }
  return diffItems(itemsOf(before, keys, request, old), itemsOf(snapshot, keys, request, target), nodeViewOrder);
}

function* itemsOf(
  snapshot: Snapshot,
  keys: Iterable<string>,
  { wantsNode, nodeName }: NodeViewRequest,
  { node, viewClass }: ViewTarget,
): Iterable<Item> {
  if (wantsNode) yield* nodeItems(snapshot, nodeName);
  for (const key of keys) {
    const state = serviceFor(snapshot, key, viewClass);
    if (state !== undefined) yield* itemsOfUnit(nodeUnit(state, node, viewClass.isExtended, false));
  }
}
