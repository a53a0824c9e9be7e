import type { RenderOptions } from "./render-options.ts";
import { comment, oneIn, protocolName, rule } from "./rule.ts";
import type { ServicePortFacts } from "./service-port.ts";

/**
 * Renders the rules that pick an endpoint: one per endpoint, each with its DNAT.
 *
 * kube-proxy gives each endpoint a chain. Without it iptables-nft loads 26 times as fast; the price is that a rule with
 * affinity names its client list twice. Affinity comes first for all endpoints: a client that has one must meet it
 * before the dice are thrown. The k-th of n rules matches with probability 1/(n−k+1), the last one always: so each endpoint
 * gets 1/n.
 *
 * `isNamed` if a rule before these says whose chain it is.
 */
export function renderEndpointRules(
  port: ServicePortFacts,
  endpoints: readonly string[],
  options: RenderOptions,
  isNamed = false,
): readonly string[] {
  const protocol = `-p ${protocolName(port.protocol)}`;
  const sticky = endpoints.map((endpoint) => {
    if (port.affinitySeconds === undefined) return { check: "", set: "" };
    const list = options.names.clientList(port.name, port.protocol, endpoint);
    const mask = options.family === "v4" ? "255.255.255.255" : "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    const tail = `--name ${list} --mask ${mask} --rsource`;
    return {
      check: `-m recent --rcheck --seconds ${port.affinitySeconds} --reap ${tail}`,
      set: `-m recent --set ${tail}`,
    };
  });
  const target = (endpoint: string): string => `-j DNAT --to-destination ${endpoint}`;
  const rules: string[] = [];
  if (port.affinitySeconds !== undefined) {
    for (const [at, endpoint] of endpoints.entries()) {
      rules.push(rule(protocol, sticky[at]?.check ?? "", sticky[at]?.set ?? "", target(endpoint)));
    }
  }
  for (const [at, endpoint] of endpoints.entries()) {
    const remaining = endpoints.length - at;
    // The first rule says whose chain it is. On each rule a comment would double what iptables-nft has to load, and
    // iptables-legacy, which takes 288 bytes for one, copies all of them at each change.
    const note = at === 0 && !isNamed ? comment(port.name) : "";
    rules.push(rule(protocol, note, remaining > 1 ? oneIn(remaining) : "", sticky[at]?.set ?? "", target(endpoint)));
  }
  return rules;
}
