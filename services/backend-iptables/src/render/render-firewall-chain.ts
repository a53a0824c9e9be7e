import ipaddr from "ipaddr.js";
import type { RenderOptions } from "./render-options.ts";
import { comment, host, rule } from "./rule.ts";
import type { LoadBalancerIP, ServicePortFacts } from "./service-port.ts";

/**
 * Renders the chain that lets only some clients go on to a load-balancer IP. Who gets to its end has not been
 * given an endpoint, and is dropped by filter PROXY-FIREWALL.
 */
export function renderFirewallChain(
  port: ServicePortFacts,
  externalChain: string,
  options: RenderOptions,
): readonly string[] {
  const filtered = port.loadBalancerIPs.filter(({ sourceRanges }) => sourceRanges !== undefined);
  const note = comment(`${port.name} loadbalancer IP`);
  const isForAll = filtered.every((ip) => String(ip.sourceRanges) === String(filtered[0]?.sourceRanges));
  const rules: string[] = [];
  const allow = (source: string, destination: string): void => {
    rules.push(rule(`-s ${source}`, destination, note, `-j ${externalChain}`));
  };
  // Kubernetes has one list of ranges for all addresses; a state file may have one for each.
  for (const ip of isForAll ? filtered.slice(0, 1) : filtered) {
    const destination = isForAll ? "" : `-d ${host(options.family, ip.address)}`;
    for (const range of ip.sourceRanges ?? []) allow(range, destination);
    if (!isNodeAllowed(ip, options.nodeAddress)) continue;
    // The load balancer's address is often one of the node's own: what the node sends there comes from it.
    for (const own of isForAll ? filtered : [ip]) allow(host(options.family, own.address), destination);
  }
  rules.push(comment(`other traffic to ${port.name} will be dropped by ${options.names.fixed("PROXY-FIREWALL")}`));
  return rules;
}

function isNodeAllowed({ sourceRanges = [] }: LoadBalancerIP, nodeAddress: string | undefined): boolean {
  if (nodeAddress === undefined) return false;
  const address = ipaddr.parse(nodeAddress);
  return sourceRanges.some((range) => {
    const [network, length] = ipaddr.parseCIDR(range);
    return network.kind() === address.kind() && address.match(network, length);
  });
}
