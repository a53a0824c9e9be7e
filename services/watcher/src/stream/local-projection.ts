import type { Snapshot } from "../store/snapshot.ts";
import { choosingNode } from "../view/node.ts";
import { diffItems } from "./diff-items.ts";
import { localDelta } from "./local-delta.ts";
import { ViewDigest } from "./local-digests.ts";
import { audienceOf, type LocalRequest, localOrder, nodeItems } from "./local-units.ts";
import { wholeView } from "./local-whole.ts";
import { nodeDelta } from "./node-delta.ts";
import type { Changes, Item, Projection } from "./projection.ts";
import { itemsOfUnit, nodeUnit, ownEndpointsOf, serviceFor } from "./service-units.ts";

/** The view of one node as a stream's items. */
export function localProjection(request: LocalRequest): Projection {
  const digest = new ViewDigest(request);
  return {
    whole: (snapshot) =>
      wholeView(snapshot, request, (units) => {
        if (request.isExtended) digest.learn(snapshot, units);
      }),
    between: (before, snapshot) => between(before, snapshot, request),
    items: (snapshot) => itemsOf(snapshot, snapshot.services.keys(), request),
    digest: (snapshot) => digest.at(snapshot),
    order: localOrder,
  };
}

function between(before: Snapshot, snapshot: Snapshot, request: LocalRequest): Changes {
  const node = choosingNode(snapshot, request.nodeName);
  const delta = localDelta(before, snapshot);
  if (before.nodes === snapshot.nodes || choosingNode(before, node.name).zone === node.zone) {
    return nodeDelta(before, snapshot, request, node, delta);
  }
  // In another zone endpoints are chosen anew where hints for zones are.
  const keys = new Set(delta.keys);
  for (const { slicesByService } of [before, snapshot]) {
    for (const [key, slices] of slicesByService.entries()) if (ownEndpointsOf(slices).hasZoneHints) keys.add(key);
  }
  return diffItems(itemsOf(before, keys, request), itemsOf(snapshot, keys, request), localOrder);
}

function* itemsOf(snapshot: Snapshot, keys: Iterable<string>, request: LocalRequest): Iterable<Item> {
  if (request.wantsNode) yield* nodeItems(snapshot, request.nodeName);
  const node = choosingNode(snapshot, request.nodeName);
  const audience = audienceOf(request, node.zone);
  for (const key of keys) {
    const state = serviceFor(snapshot, key, audience);
    if (state !== undefined) yield* itemsOfUnit(nodeUnit(state, node, request.isExtended, false));
  }
}
