import { IptablesRuleSet } from "@kpng/backend-iptables/commit/iptables-rule-set.ts";
import { chainNames } from "@kpng/backend-iptables/render/chains.ts";
import { FamilyPlanner } from "@kpng/backend-kit/proxy/family-planner.ts";
import type { AddressSet } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
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
  const planner = new FamilyPlanner(proxySettingsOf(settings), family);
  const { plan } = await planner.plan(view, "all", localAddresses());
  await rules.sync(plan, "all", { committing: () => undefined });
  return text;
}

/** Addresses of the node's interfaces, in place of this machine's. */
function localAddresses(): AddressSet {
  const local = (of: Family) => [hosts.n1[of], gateways.n1[of], boundAddress[of], of === "v4" ? "127.0.0.1" : "::1"];
  return { v4: local("v4"), v6: local("v6") };
}
