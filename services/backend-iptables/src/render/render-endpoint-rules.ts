import { addressAndPort } from "@kpng/model/address.ts";
import type { EndpointAddress, ServicePortPlan } from "@kpng/service-plan/service-plan.ts";
import type { RenderOptions } from "./render-options.ts";
import { comment, oneIn, protocolName, rule } from "./rule.ts";

/**
 * Renders the rules that choose an endpoint: one per endpoint, each with its DNAT.
 *
 * kube-proxy gives each endpoint a chain. Without them iptables-nft loads 26 times as fast; in return a rule with
 * affinity names its client list twice. The affinity rules of all endpoints come first: a client must find the endpoint
 * that it had before one is chosen at random. The k-th of n rules matches with probability 1/(n−k+1), the last one
 * always, so each endpoint gets 1/n.
 *
 * `isNamed` if a rule before these names the Service port.
 */
export function renderEndpointRules(
  port: ServicePortPlan,
  endpoints: readonly EndpointAddress[],
  { names, node }: RenderOptions,
  isNamed = false,
): readonly string[] {
  const { affinitySeconds } = port;
  const protocol = `-p ${protocolName(port.protocol)}`;
  const mask = node.family === "v4" ? "255.255.255.255" : "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
  const targets = endpoints.map(({ address, port: number }) => {
    const text = addressAndPort(address, number);
    const target = `-j DNAT --to-destination ${text}`;
    if (affinitySeconds === undefined) return { check: "", set: "", target };
    const list = `--name ${names.clientList(port.name, port.protocol, text)} --mask ${mask} --rsource`;
    return {
      check: `-m recent --rcheck --seconds ${affinitySeconds} --reap ${list}`,
      set: `-m recent --set ${list}`,
      target,
    };
  });
  const sticky = affinitySeconds === undefined ? [] : targets;
  return [
    ...sticky.map(({ check, set, target }) => rule(protocol, check, set, target)),
    ...targets.map(({ set, target }, index) => {
      const remaining = targets.length - index;
      // Only the first rule names its Service port. A comment on each rule would double what iptables-nft has to load,
      // and iptables-legacy, which needs 288 bytes for one, copies all of them at each change.
      const note = index === 0 && !isNamed ? comment(port.name) : "";
      return rule(protocol, note, remaining > 1 ? oneIn(remaining) : "", set, target);
    }),
  ];
}
