import type { Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import { indexPlans } from "@kpng/service-plan/planned-node.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { type Comparison, comparePackets } from "@kpng/shadow/compare-packets.ts";
import { kubeProxyRules } from "@kpng/shadow/kube-proxy-rules.ts";
import { nodeAddress, podCidrs, tracedNode } from "./world.ts";

/** Shadow mode's comparison on a node: kube-proxy's rules and the plans of the view. */
export function shadowDifferences(saved: string, view: NodeView, family: Family): Promise<Comparison> {
  const node: NodePlan = {
    family,
    isMasqueradeAll: false,
    podTraffic: { kind: "source", cidr: podCidrs[family] },
    nodePortAddresses: "all",
    isLoopbackNodePorts: family === "v4",
    nodeAddress: nodeAddress(view.nodeName, family),
    serviceCIDRs: [],
  };
  const links = {
    ...tracedNode(view.nodeName, family),
    addresses: [nodeAddress(view.nodeName, family)],
    links: [],
  };
  const plans = [...view.services.values()].map((service) => planService(service, node));
  const planned = indexPlans(node, links.localCIDRs, plans);
  return comparePackets(kubeProxyRules(saved), planned, { view, links }, new AbortController().signal);
}
