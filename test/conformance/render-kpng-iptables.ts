import { IptablesRuleSet } from "@kpng/backend-iptables/commit/iptables-rule-set.ts";
import { chainNames } from "@kpng/backend-iptables/render/chain-names.ts";
import { familyPlan } from "@kpng/backend-kit/testing/family-plans.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { planNode } from "@kpng/service-plan/plan-node.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { firewallText } from "../scenario/firewall.ts";
import type { State } from "../scenario/manifest.ts";
import { boundAddress, type Family, gateways, hosts } from "../scenario/places.ts";
import { proxySettingsOf } from "../scenario/proxy-settings.ts";
import type { Firewall, Settings } from "../scenario/scenario.ts";
import type { RulesText } from "./check-rules.ts";
import { viewOfState } from "./view-of-state.ts";

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
  const view = viewOfState(state);
  const render = async (family: Family) =>
    firewallText(firewall, family) + (await renderFamily(view, settings, family));
  return { v4: await render("v4"), v6: await render("v6") };
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
  const local = (of: Family) => [hosts.n1[of], gateways.n1[of], boundAddress[of], of === "v4" ? "127.0.0.1" : "::1"];
  return planNode(proxySettingsOf(settings), family, {
    node: view.node,
    localAddresses: { v4: local("v4"), v6: local("v6") },
  });
}
