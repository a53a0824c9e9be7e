import type { Family } from "./places.ts";
import type { Firewall } from "./scenario.ts";

/** Rules of a firewall as `iptables -A` takes them, in their order. */
export function firewallRules({ drops }: Firewall, family: Family): readonly string[] {
  if (!drops.includes("INPUT")) return [];
  return [
    "INPUT -i lo -j ACCEPT",
    "INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    // Without neighbour discovery there is no IPv6.
    ...(family === "v6" ? ["INPUT -p ipv6-icmp -j ACCEPT"] : []),
  ];
}

/** The firewall as iptables-save prints it. */
export function firewallText(firewall: Firewall, family: Family): string {
  const policies = firewall.drops.map((chain) => `:${chain} DROP [0:0]`);
  return ["*filter", ...policies, ...firewallRules(firewall, family).map((rule) => `-A ${rule}`), "COMMIT", ""].join(
    "\n",
  );
}
