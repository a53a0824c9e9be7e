import { firewallRules } from "../../scenario/firewall.ts";
import type { Firewall } from "../../scenario/scenario.ts";
import type { TwoNodes } from "./two-nodes.ts";

const none: Firewall = { drops: [] };

/** The firewall of n1's administrator, one scenario's after another's. */
export class NodeFirewall {
  #present: Firewall = none;

  /** Rules go in behind those that stand. With policies last and first, no packet meets half a firewall. */
  async put(world: TwoNodes, wanted: Firewall = none): Promise<void> {
    const before = this.#present;
    if (JSON.stringify(before) === JSON.stringify(wanted)) return;
    this.#present = wanted;
    for (const [family, tool] of [
      ["v4", "iptables"],
      ["v6", "ip6tables"],
    ] as const) {
      const lines = [
        ...before.drops.map((chain) => `${tool} -P ${chain} ACCEPT`),
        ...firewallRules(before, family).map((rule) => `${tool} -D ${rule}`),
        ...firewallRules(wanted, family).map((rule) => `${tool} -A ${rule}`),
        ...wanted.drops.map((chain) => `${tool} -P ${chain} DROP`),
      ];
      await world.laboratory.run("n1", ["sh", "-c", lines.join(" && ")]);
    }
  }
}
