import { firewallRules } from "../../scenario/firewall.ts";
import type { Firewall } from "../../scenario/scenario.ts";
import type { TwoNodes } from "./two-nodes.ts";

const none: Firewall = { drops: [] };

/** Firewall of n1's administrator, which changes between scenarios. */
export class NodeFirewall {
  #present: Firewall = none;

  /**
   * Replaces the firewall. New rules follow the installed ones; policies are set last and reset first, so that no
   * packet meets half a firewall.
   */
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
