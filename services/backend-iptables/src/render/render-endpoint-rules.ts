import { addressAndPort } from "@kpng/model/address.ts";
import type { EndpointAddress, ServicePortPlan } from "@kpng/service-plan/service-plan.ts";
import type { RenderOptions } from "./render-options.ts";
import { comment, oneIn, protocolName, rule } from "./rule.ts";

/**
 * Renders the rules of a chain that chooses an endpoint: one rule per endpoint, which has the DNAT. `renderService`
 * calls it for the chains of a Service port: the one with all endpoints, and the one with those of the node. Each kind
 * of chain has a file of its own.
 *
 * kube-proxy gives each endpoint a chain of its own. iptables-nft loads rules without such chains 26 times as fast. The
 * price: with client affinity, two rules per endpoint name its client list.
 *
 * With client affinity, each endpoint has a second rule. These rules come first, so that a client returns to its
 * endpoint before one is chosen at random. The k-th of n rules matches with probability 1/(n−k+1), the last one
 * always, so each endpoint gets 1/n.
 *
 * `isNamed` is true if a preceding rule of the chain already has the comment with the name of the Service port.
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
      // Only the first rule has a comment. A comment on each rule would double the data that iptables-nft loads. In
      // iptables-legacy a comment takes 288 bytes, and each change copies all of them.
      const note = index === 0 && !isNamed ? comment(port.name) : "";
      return rule(protocol, note, remaining > 1 ? oneIn(remaining) : "", set, target);
    }),
  ];
}
