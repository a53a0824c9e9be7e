import type { ViewNode } from "@kpng/model/node-view.ts";
import type { Snapshot } from "../store/snapshot.ts";
import type { ChoosingNode } from "./choose-endpoints.ts";

/** Returns what a node is told of itself, or undefined if the cluster does not know it. */
export function makeViewNode(snapshot: Snapshot, nodeName: string): ViewNode | undefined {
  const node = snapshot.nodes.get(nodeName);
  if (node === undefined) return undefined;
  const { name, zone, addresses, podCIDRs, isEligible } = node;
  return { name, zone, addresses, podCIDRs, isEligible, serviceCIDRs: snapshot.serviceCIDRs };
}

/** The node as far as the choice of endpoints depends on it; one that the cluster does not know has no zone. */
export function choosingNode(snapshot: Snapshot, nodeName: string): ChoosingNode {
  return { name: nodeName, zone: snapshot.nodes.get(nodeName)?.zone ?? "" };
}
