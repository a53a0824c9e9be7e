import type { EndpointSetName, Route } from "@kpng/service-plan/service-plan.ts";
import type { Routes } from "./port-chains.ts";
import type { RenderOptions } from "./render-options.ts";
import { comment, ifPod, rule } from "./rule.ts";

/**
 * Renders the chain EXT of a Service port, for packets to a node port, an external IP or a load-balancer IP.
 * `renderService` calls it for ports with such a frontend. Each kind of chain has a file of its own. Cluster IPs have
 * no such chain: `renderFrontends` leads them directly to the chain that chooses an endpoint.
 *
 * First come the senders whose route differs from that of outside clients, then all others. Packets that reach its end
 * are dropped or refused by the chain EXTERNAL-SERVICES of table filter.
 */
export function renderExternalChain(
  name: string,
  { pod, node, outside }: Routes,
  chains: ReadonlyMap<EndpointSetName, string>,
  { names, node: { podTraffic } }: RenderOptions,
): readonly string[] {
  const masquerade = `-j ${names.fixed("MARK-MASQ")}`;
  const rules: string[] = [];
  if (podTraffic !== undefined && pod.kind === "balance" && !isSameRoute(pod, outside)) {
    const match = ifPod(podTraffic);
    const note = comment(`pod traffic for ${name} external destinations`);
    if (pod.isMasqueraded) rules.push(rule(match.source, match.interface, note, masquerade));
    rules.push(rule(match.source, match.interface, note, `-j ${chains.get(pod.set)}`));
  }
  if (node.kind === "balance" && !isSameRoute(node, outside)) {
    const match = "-m addrtype --src-type LOCAL";
    const note = (verb: string): string => comment(`${verb} LOCAL traffic for ${name} external destinations`);
    if (node.isMasqueraded) rules.push(rule(note("masquerade"), match, masquerade));
    rules.push(rule(note("route"), match, `-j ${chains.get(node.set)}`));
  }
  if (outside.kind !== "balance") return rules;
  if (outside.isMasqueraded) {
    rules.push(rule(comment(`masquerade traffic for ${name} external destinations`), masquerade));
  }
  return [...rules, `-j ${chains.get(outside.set)}`];
}

function isSameRoute(a: Route, b: Route): boolean {
  if (a.kind !== "balance" || b.kind !== "balance") return a.kind === b.kind;
  return a.set === b.set && a.isMasqueraded === b.isMasqueraded;
}
