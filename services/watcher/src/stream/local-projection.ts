import type { Snapshot } from "../store/snapshot.ts";
import { choosingNode } from "../view/node.ts";
import { diffItems } from "./diff-items.ts";
import { localDelta } from "./local-delta.ts";
import { type LocalRequest, localOrder, nodeItems, serviceItems } from "./local-units.ts";
import { wholeView } from "./local-whole.ts";
import type { Changes, Item, Projection } from "./projection.ts";

/** The view of one node as a stream's items. */
export function localProjection(request: LocalRequest): Projection {
  return {
    whole: (snapshot) => wholeView(snapshot, request),
    between: (before, snapshot) => between(before, snapshot, request),
    items: (snapshot) => itemsOf(snapshot, snapshot.services.keys(), request),
    order: localOrder,
  };
}

function between(before: Snapshot, snapshot: Snapshot, request: LocalRequest): Changes {
  const node = choosingNode(snapshot, request.nodeName);
  const difference = (beforeKeys: Iterable<string>, keys: Iterable<string>): Changes =>
    diffItems(itemsOf(before, beforeKeys, request), itemsOf(snapshot, keys, request), localOrder);
  // A node that moved to another zone has every endpoint chosen anew.
  if (choosingNode(before, node.name).zone !== node.zone) {
    return difference(before.services.keys(), snapshot.services.keys());
  }
  const delta = localDelta(before, snapshot);
  if (delta.concernedNodes.has(node.name) || isNodeChanged(before, snapshot, request)) {
    return difference(delta.keys, delta.keys);
  }
  return delta.changesFor(request, node);
}

function isNodeChanged(before: Snapshot, snapshot: Snapshot, { wantsNode, nodeName }: LocalRequest): boolean {
  if (!wantsNode) return false;
  return before.nodes.get(nodeName) !== snapshot.nodes.get(nodeName) || before.serviceCIDRs !== snapshot.serviceCIDRs;
}

function* itemsOf(snapshot: Snapshot, keys: Iterable<string>, request: LocalRequest): Iterable<Item> {
  if (request.wantsNode) yield* nodeItems(snapshot, request.nodeName);
  yield* serviceItems(snapshot, keys, request, choosingNode(snapshot, request.nodeName));
}
