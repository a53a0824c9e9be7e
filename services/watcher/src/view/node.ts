import type { ViewNode } from "@kpng/model/node-view.ts";
import type { Snapshot } from "../store/snapshot.ts";
import type { ChoosingNode } from "./choose-endpoints.ts";

/**
 * Returns what the view of a node says about the node itself; undefined if the node is not in the cluster. `nodeItems`
 * calls it for the stream, and `findFrontend` for the rules in `kpng explain`.
 *
 * Separate from the Services of a view, because a subscriber gets only the node that it asks for.
 */
export function makeViewNode(snapshot: Snapshot, nodeName: string): ViewNode | undefined {
  const node = snapshot.nodes.get(nodeName);
  if (node === undefined) return undefined;
  const { name, zone, addresses, podCIDRs, isEligible } = node;
  return { name, zone, addresses, podCIDRs, isEligible, serviceCIDRs: snapshot.serviceCIDRs };
}

/**
 * Returns the fields of a node on which the choice of endpoints depends. A node that is not in the cluster has no zone.
 * `items/view-target.ts` and `inspect/` call it before they choose endpoints.
 */
export function choosingNode(snapshot: Snapshot, nodeName: string): ChoosingNode {
  return { name: nodeName, zone: snapshot.nodes.get(nodeName)?.zone ?? "" };
}
