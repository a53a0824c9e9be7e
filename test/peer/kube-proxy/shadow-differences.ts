import type { Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ProxyMode } from "@kpng/service-plan/outcomes.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import { indexPlans } from "@kpng/service-plan/planned-node.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { type Comparison, comparePackets } from "@kpng/shadow/compare-packets.ts";
import type { Difference } from "@kpng/shadow/difference.ts";
import { kubeProxyRules } from "@kpng/shadow/kube-proxy-rules.ts";
import { nodeAddress, podCidrs, tracedNode } from "./world.ts";

/** Shadow mode's comparison on a node: kube-proxy's rules in a mode, and the plans of the view. */
export async function shadowDifferences(
  mode: ProxyMode,
  saved: string,
  view: NodeView,
  family: Family,
): Promise<Comparison> {
  const own = nodeAddress(view.nodeName, family);
  const node: NodePlan = {
    family,
    isMasqueradeAll: false,
    podTraffic: { kind: "source", cidr: podCidrs[family] },
    // The defaults of kube-proxy.
    nodePortAddresses: mode === "iptables" ? "all" : [own],
    isLoopbackNodePorts: mode === "iptables" && family === "v4",
    nodeAddress: own,
    serviceCIDRs: [],
  };
  const links = {
    ...tracedNode(view.nodeName, family),
    addresses: [own],
    links: [],
  };
  const plans = [...view.services.values()].map((service) => planService(service, node));
  const planned = indexPlans(node, links.localCIDRs, plans);
  const rules = { mode, text: mode === "iptables" ? kubeProxyRules(saved) : saved };
  const compared = await comparePackets(rules, planned, { view, links, mode }, new AbortController().signal);
  if (mode === "iptables") return compared;
  return { ...compared, differences: compared.differences.filter((each) => !isOfTwoNodes(each, view, family)) };
}

/**
 * True for a packet of a pod to itself if slices disagree about the pod's node. kube-proxy's nftables mode then
 * masquerades it on the ports that it has on this node, and our plan on all, as iptables mode does.
 */
function isOfTwoNodes({ sender, source }: Difference, view: NodeView, family: Family): boolean {
  if (sender !== "itself") return false;
  const pods = [...view.services.values()].flatMap(({ endpoints }) => endpoints);
  return new Set(pods.filter(({ addresses }) => addresses[family][0] === source).map((pod) => pod.isOnNode)).size > 1;
}
