import type { Family } from "./places.ts";
import type { Firewall } from "./scenario.ts";

/** Rules of a firewall in the syntax of `iptables -A`, in order. */
export function firewallRules({ drops }: Firewall, family: Family): readonly string[] {
  if (!drops.includes("INPUT")) return [];
  return [
    "INPUT -i lo -j ACCEPT",
    "INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    // IPv6 does not work without neighbour discovery.
    ...(family === "v6" ? ["INPUT -p ipv6-icmp -j ACCEPT"] : []),
  ];
}

/** Firewall in the format of iptables-save. */
export function firewallText(firewall: Firewall, family: Family): string {
  const policies = firewall.drops.map((chain) => `:${chain} DROP [0:0]`);
  return ["*filter", ...policies, ...firewallRules(firewall, family).map((rule) => `-A ${rule}`), "COMMIT", ""].join(
    "\n",
  );
}
