import type { ServicePlan, ServicePortPlan } from "@kpng/service-plan/service-plan.ts";
import { addressBucket } from "./dispatch.ts";
import { type PortChains, portChains } from "./port-chains.ts";
import { renderEndpointRules } from "./render-endpoint-rules.ts";
import { renderExternalChain } from "./render-external-chain.ts";
import { renderFirewallChain } from "./render-firewall-chain.ts";
import { renderFrontends } from "./render-frontends.ts";
import type { RenderOptions } from "./render-options.ts";
import type { ListedRule, RenderedService } from "./rendered-service.ts";
import { comment, host, ifNotPod, masquerade, protocolName, rule } from "./rule.ts";
import { type ChainId, chainId } from "./table.ts";

/**
 * Renders the iptables rules of one Service in one address family. `putPlan` calls it for each changed Service.
 *
 * Each kind of chain has a renderer in a file of its own; this file decides which chains a Service has.
 *
 * The rules differ from kube-proxy's in three points. Endpoints have no chains of their own. Packets that an endpoint
 * sends to itself through a Service are masqueraded by rules in POSTROUTING. SERVICES and NODEPORTS are divided into
 * buckets, see `RuleList`.
 *
 * Pure; O(endpoints of all ports).
 */
export function renderService(
  { key, ports, hairpin, healthCheck }: ServicePlan,
  options: RenderOptions,
): RenderedService {
  const { names, node } = options;
  const chains = new Map<ChainId, readonly string[]>();
  const listed: ListedRule[] = [];
  for (const port of ports) {
    const ofPort = portChains(port, names);
    for (const [chain, rules] of renderPortChains(port, ofPort, options)) chains.set(chainId("nat", chain), rules);
    listed.push(...renderFrontends(port, ofPort, options));
  }
  for (const address of hairpin) {
    const cidr = host(node.family, address);
    const list = addressBucket("HAIRPIN", names, node.family, address);
    listed.push({ list, rule: rule(`-s ${cidr}`, `-d ${cidr}`, masquerade) });
  }
  if (healthCheck !== undefined) {
    // The node's own firewall may reject ports without an accepting rule.
    const list = { id: chainId("filter", names.fixed("NODEPORTS")) };
    const note = comment(`${key} health check node port`);
    listed.push({ list, rule: rule("-p tcp", note, `-m tcp --dport ${healthCheck.port}`, "-j ACCEPT") });
  }
  return { chains, listed };
}

function* renderPortChains(
  port: ServicePortPlan,
  chains: PortChains,
  options: RenderOptions,
): Iterable<readonly [chain: string, rules: readonly string[]]> {
  const { sets, external, firewall, internalRoutes, externalRoutes } = chains;
  const internal = internalRoutes?.outside;
  for (const [set, chain] of sets) {
    const isInternal = internal?.kind === "balance" && internal.set === set;
    const first = isInternal ? renderClusterIPMasquerade(port, chains, options) : [];
    const isNamed = first.length > 0;
    yield [chain, [...first, ...renderEndpointRules(port, port.sets[set], options, isNamed)]];
  }
  if (external === undefined || externalRoutes === undefined) return;
  yield [external, renderExternalChain(port.name, externalRoutes, sets, options)];
  const filtered = port.frontends.filter(({ sources }) => sources !== undefined);
  if (filtered.length > 0) yield [firewall, renderFirewallChain(port.name, filtered, external, options)];
}

/** Renders the rules that mark packets to cluster IPs for masquerade: all packets, or only those not sent by pods. */
function renderClusterIPMasquerade(
  { name, protocol, port, frontends }: ServicePortPlan,
  { internalRoutes }: PortChains,
  { node, names }: RenderOptions,
): readonly string[] {
  if (internalRoutes?.outside.kind !== "balance" || !internalRoutes.outside.isMasqueraded) return [];
  const { pod } = internalRoutes;
  const isForAll = pod.kind === "balance" && pod.isMasqueraded;
  const match = isForAll ? { source: "", interface: "" } : ifNotPod(node.podTraffic);
  const text = protocolName(protocol);
  return frontends.flatMap(({ kind, address }) =>
    kind !== "clusterIP" || address === undefined
      ? []
      : rule(
          match.source,
          `-d ${host(node.family, address)}`,
          match.interface,
          `-p ${text}`,
          comment(`${name} cluster IP`),
          `-m ${text} --dport ${port}`,
          `-j ${names.fixed("MARK-MASQ")}`,
        ),
  );
}
