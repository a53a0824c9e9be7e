import { IptablesRuleSet } from "@kpng/backend-iptables/commit/iptables-rule-set.ts";
import { chainNames } from "@kpng/backend-iptables/render/chain-names.ts";
import { readProxySettings } from "@kpng/backend-kit/proxy/proxy-settings.ts";
import { familyPlan } from "@kpng/backend-kit/testing/family-plans.ts";
import type { NodeView, ServiceView } from "@kpng/model/node-view.ts";
import { type ServiceKey, serviceKey } from "@kpng/model/service.ts";
import { planNode } from "@kpng/service-plan/plan-node.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { decodeNode } from "@kpng/watcher/source/decode/decode-node.ts";
import { makeDecodeOptions } from "@kpng/watcher/source/decode/decode-options.ts";
import { decodeService } from "@kpng/watcher/source/decode/decode-service.ts";
import { decodeSlice } from "@kpng/watcher/source/decode/decode-slice.ts";
import { type Decoded, showPath } from "@kpng/watcher/source/decode/decoded.ts";
import { makeServiceView } from "@kpng/watcher/view/service-view.ts";
import { nodes } from "../scenario/build.ts";
import { firewallText } from "../scenario/firewall.ts";
import type { State } from "../scenario/manifest.ts";
import { boundAddress, bridgeName, type Family, gateways, hosts, podCIDRs } from "../scenario/places.ts";
import type { Firewall, Settings } from "../scenario/scenario.ts";
import type { RulesText } from "./check-rules.ts";

const decodeOptions = makeDecodeOptions();
const silent = { error() {}, info() {}, debug() {}, with: () => silent };

/**
 * Returns the rules that kpng-iptables would install in a kernel that has only firewall rules: from manifests to view
 * to rules, without a process.
 */
export async function renderKpngIptables(
  state: State,
  settings: Settings,
  firewall: Firewall = { drops: [] },
): Promise<RulesText> {
  const view = makeView(state);
  const render = async (family: Family) =>
    firewallText(firewall, family) + (await renderFamily(view, settings, family));
  return { v4: await render("v4"), v6: await render("v6") };
}

function makeView(state: State): NodeView {
  const slices = state.slices.map((slice) => decoded(decodeSlice(slice)));
  const node = decoded(decodeNode(nodes[0], decodeOptions));
  const services = state.services
    .map((service) => decoded(decodeService(service, decodeOptions)))
    .filter(({ proxyName }) => proxyName === "")
    .map((service): readonly [ServiceKey, ServiceView] => {
      const own = slices.filter(({ serviceName }) => serviceName === service.name);
      return [serviceKey(service), makeServiceView(service, own, node)];
    });
  return { nodeName: node.name, node: { ...node, serviceCIDRs: [] }, services: new Map(services) };
}

function decoded<T>(result: Decoded<T>): T {
  if (result.kind === "ok") return result.value;
  throw new Error(result.kind === "skip" ? result.note : `${showPath(result.path)}: ${result.problem}`);
}

async function renderFamily(view: NodeView, settings: Settings, family: Family): Promise<string> {
  let text = "";
  const kernel = {
    read: async () => undefined,
    restore: async (transaction: string) => {
      text += transaction;
    },
  };
  const rules = new IptablesRuleSet({
    family,
    settings: { names: chainNames("KPNG-"), masqueradeBit: 14 },
    kernel,
    log: silent,
  });
  await rules.sync(familyPlan(view, planOfNode(view, settings, family)), "all", { committing: () => undefined });
  return text;
}

/** Returns the plan of the process, with fixed node addresses instead of the machine's. */
function planOfNode(view: NodeView, settings: Settings, family: Family): NodePlan {
  const { detectLocal = "ClusterCIDR", nodePortAddresses = [], localhostNodePorts = true, masqueradeAll } = settings;
  const parsed = readProxySettings(
    {
      detectLocalMode: detectLocal === "none" ? "ClusterCIDR" : detectLocal,
      clusterCidr: detectLocal === "ClusterCIDR" ? Object.values(podCIDRs.cluster) : [],
      podBridgeInterface: bridgeName,
      podInterfaceNamePrefix: bridgeName.slice(0, 3),
      masqueradeAll,
      nodeportAddresses: nodePortAddresses,
    },
    localhostNodePorts,
  );
  const local = (of: Family) => [hosts.n1[of], gateways.n1[of], boundAddress[of], of === "v4" ? "127.0.0.1" : "::1"];
  return planNode(parsed, family, { node: view.node, localAddresses: { v4: local("v4"), v6: local("v6") } });
}
