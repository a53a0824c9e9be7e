import { FamilyRules } from "@kpng/backend-iptables/family-rules.ts";
import { chainNames } from "@kpng/backend-iptables/render/chain-names.ts";
import type { RenderOptions } from "@kpng/backend-iptables/render/render-options.ts";
import { type Comparison, compareRules } from "@kpng/backend-iptables/shadow/compare-rules.ts";
import { kubeProxyRules } from "@kpng/backend-iptables/shadow/kube-proxy-rules.ts";
import { ourRules } from "@kpng/backend-iptables/shadow/our-rules.ts";
import type { Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { nodeAddress, podCidrs, tracedNode } from "./world.ts";

const silent = { error() {}, info() {}, debug() {}, with: () => silent };

/** Returns the comparison of shadow mode on a node: kube-proxy's rules with the rules that we render for the view. */
export async function shadowDifferences(saved: string, view: NodeView, family: Family): Promise<Comparison> {
  const kernel = { read: async () => undefined, restore: async () => undefined };
  const rules = new FamilyRules(kernel, silent);
  const options = renderOptions(view, family);
  await rules.sync(view, "all", options);
  const own = nodeAddress(view.nodeName, family);
  const facts = { ...tracedNode(view.nodeName, family), addresses: [own], links: [] };
  const world = { family, view, facts, podTraffic: options.node.podTraffic, nodeAddress: options.node.nodeAddress };
  const both = { kubeProxy: kubeProxyRules(saved), kpng: ourRules(rules.bodies, options) };
  return compareRules(both, world, new AbortController().signal);
}

function renderOptions(view: NodeView, family: Family): RenderOptions {
  return {
    node: {
      family,
      isMasqueradeAll: false,
      podTraffic: { kind: "source", cidr: podCidrs[family] },
      nodePortAddresses: "all",
      isLoopbackNodePorts: family === "v4",
      nodeAddress: nodeAddress(view.nodeName, family),
      serviceCIDRs: [],
    },
    names: chainNames("KPNG-"),
    masqueradeMark: 0x4000,
    localnetGuard: family === "v4" ? "others" : "none",
    isConntrackLiberal: false,
  };
}
