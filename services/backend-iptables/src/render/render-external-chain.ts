import type { RenderOptions } from "./render-options.ts";
import type { PortPlan } from "./render-service.ts";
import { comment, ifLocal, rule } from "./rule.ts";
import type { ServicePortFacts } from "./service-port.ts";

/**
 * Renders the chain of what is sent to a node port, an external IP or a load-balancer IP.
 *
 * Policy Cluster: the endpoint may be on another node, so its answer must come back here: masquerade. Policy Local: the
 * client's address is kept; but pods and the node itself are treated as if they had gone out to the load balancer and come
 * back in, and may use all endpoints. The node's own connections are masqueraded, because the address that they were
 * sent to may be one of its own and so be their source.
 */
export function renderExternalChain(port: ServicePortFacts, plan: PortPlan, options: RenderOptions): readonly string[] {
  const masquerade = `-j ${options.names.fixed("MARK-MASQ")}`;
  const rules: string[] = [];
  if (!port.isExternalLocal) {
    rules.push(rule(comment(`masquerade traffic for ${port.name} external destinations`), masquerade));
  } else if (plan.clusterChain !== undefined) {
    const toCluster = `-j ${plan.clusterChain}`;
    if (options.localTraffic !== undefined) {
      const match = ifLocal(options.localTraffic);
      const note = comment(`pod traffic for ${port.name} external destinations`);
      rules.push(rule(match.source, match.interface, note, toCluster));
    }
    const fromNode = "-m addrtype --src-type LOCAL";
    const note = (verb: string): string => comment(`${verb} LOCAL traffic for ${port.name} external destinations`);
    rules.push(rule(note("masquerade"), fromNode, masquerade), rule(note("route"), fromNode, toCluster));
  }
  if (plan.outsideChain !== undefined) rules.push(`-j ${plan.outsideChain}`);
  return rules;
}
