import { parseAddress } from "@kpng/model/address.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import { addressBucket, type RuleList } from "./dispatch.ts";
import { renderEndpointRules } from "./render-endpoint-rules.ts";
import { renderExternalChain } from "./render-external-chain.ts";
import { renderFirewallChain } from "./render-firewall-chain.ts";
import { renderFrontends } from "./render-frontends.ts";
import type { RenderOptions } from "./render-options.ts";
import { comment, host, ifNotLocal, masquerade, protocolName, rule } from "./rule.ts";
import { type ServicePortFacts, servicePorts } from "./service-port.ts";
import { type ChainId, chainId } from "./table.ts";

/** A rule that a Service adds to a list that it shares with others. */
export interface ListedRule {
  readonly list: RuleList;
  readonly rule: string;
}

/** All that one Service adds to the rules of one family. */
export interface RenderedService {
  /** Rules of each chain that is the Service's own. */
  readonly chains: ReadonlyMap<ChainId, readonly string[]>;
  readonly listed: readonly ListedRule[];
}

/** Which chains a service port has; a rule never jumps to one that is not among them. */
export interface PortPlan {
  /** Undefined if the policy's set is not used or is empty. */
  readonly clusterChain?: string | undefined;
  readonly localChain?: string | undefined;
  /** Where connections to cluster IPs go; undefined if there is no endpoint for them. */
  readonly internalChain?: string | undefined;
  /** Where what comes from outside goes, behind {@link externalChain}. */
  readonly outsideChain?: string | undefined;
  /** For all addresses but cluster IPs; undefined if there are none, or no endpoint anywhere. */
  readonly externalChain?: string | undefined;
  readonly firewallChain: string;
}

/**
 * Renders what one Service adds to the rules of one family.
 *
 * Pure; O(ports × endpoints). Semantics: kube-proxy's iptables mode (`iptables/proxier.go`, syncProxyRules), with these
 * differences in form: endpoints have no chains, what a pod sends to itself is found in POSTROUTING, and SERVICES and
 * NODEPORTS are lists of buckets.
 */
export function renderService(view: ServiceView, options: RenderOptions): RenderedService {
  const chains = new Map<ChainId, readonly string[]>();
  const listed: ListedRule[] = [];
  const ports = servicePorts(view, options.family);
  for (const port of ports) {
    const plan = planPort(port, options);
    const put = (chain: string | undefined, rules: readonly string[]): void => {
      if (chain !== undefined) chains.set(chainId("nat", chain), rules);
    };
    const offCluster = renderClusterIPMasquerade(port, options);
    for (const [chain, endpoints] of [
      [plan.clusterChain, port.clusterEndpoints],
      [plan.localChain, port.localEndpoints],
    ] as const) {
      const first = chain === plan.internalChain ? offCluster : [];
      put(chain, [...first, ...renderEndpointRules(port, endpoints, options, first.length > 0)]);
    }
    put(plan.externalChain, plan.externalChain === undefined ? [] : renderExternalChain(port, plan, options));
    if (plan.externalChain !== undefined && port.loadBalancerIPs.some((ip) => ip.sourceRanges !== undefined)) {
      put(plan.firewallChain, renderFirewallChain(port, plan.externalChain, options));
    }
    listed.push(...renderFrontends(port, plan, options));
  }
  // With external policy Local a pod of another node that comes to this one gets any endpoint, and keeps its address.
  const isForeign =
    options.localTraffic !== undefined &&
    ports.some((port) => port.isExternalLocal && planPort(port, options).externalChain !== undefined);
  for (const address of hairpinAddresses(view, options, isForeign)) {
    const cidr = host(options.family, address);
    const list = addressBucket("HAIRPIN", options.names, options.family, address);
    listed.push({ list, rule: rule(`-s ${cidr}`, `-d ${cidr}`, masquerade) });
  }
  // A Service of the other family alone has its health checks there.
  if (ports.length > 0) listed.push(...renderHealthCheckAccept(view, options));
  return { chains, listed };
}

function planPort(port: ServicePortFacts, { names }: RenderOptions): PortPlan {
  const isExternallyAccessible = port.nodePort !== 0 || port.externalIPs.length + port.loadBalancerIPs.length > 0;
  const usesCluster = !port.isInternalLocal || isExternallyAccessible;
  const usesLocal = port.isInternalLocal || port.isExternalLocal;
  const name = (kind: "SVC" | "SVL" | "EXT" | "FW"): string => names.ofService(kind, port.name, port.protocol);
  const clusterChain = usesCluster && port.clusterEndpoints.length > 0 ? name("SVC") : undefined;
  const localChain = usesLocal && port.localEndpoints.length > 0 ? name("SVL") : undefined;
  return {
    clusterChain,
    localChain,
    internalChain: port.isInternalLocal ? localChain : clusterChain,
    outsideChain: isExternallyAccessible ? (port.isExternalLocal ? localChain : clusterChain) : undefined,
    externalChain: port.hasEndpoints && isExternallyAccessible ? name("EXT") : undefined,
    firewallChain: name("FW"),
  };
}

/**
 * Off-cluster clients of a cluster IP get the node's address: a router may send the cluster IPs' range to any node, and
 * the endpoint's answer must come back through the node that it was sent to.
 */
function renderClusterIPMasquerade(port: ServicePortFacts, options: RenderOptions): readonly string[] {
  const { family, isMasqueradeAll, localTraffic, names } = options;
  if (!isMasqueradeAll && localTraffic === undefined) return [];
  const match =
    isMasqueradeAll || localTraffic === undefined ? { source: "", interface: "" } : ifNotLocal(localTraffic);
  const protocol = protocolName(port.protocol);
  return port.clusterIPs.map((address) =>
    rule(
      match.source,
      `-d ${host(family, address)}`,
      match.interface,
      `-p ${protocol}`,
      comment(`${port.name} cluster IP`),
      `-m ${protocol} --dport ${port.port}`,
      `-j ${names.fixed("MARK-MASQ")}`,
    ),
  );
}

/**
 * Addresses of endpoints that may reach themselves through a Service by way of this node: those on it, and with
 * `isForeign` those on others too.
 */
function hairpinAddresses(
  { service, endpoints }: ServiceView,
  { family }: RenderOptions,
  isForeign: boolean,
): ReadonlySet<string> {
  const addresses = new Set<string>();
  if (service.isHeadless || service.type === "ExternalName") return addresses;
  for (const { isOnNode, use, addresses: own } of endpoints) {
    const address = own[family][0];
    if (!(isOnNode || isForeign) || !(use.cluster || use.local) || address === undefined) continue;
    if (parseAddress(address)?.family === family) addresses.add(address);
  }
  return addresses;
}

/** A load balancer asks the node whether it has endpoints, even where the node's own firewall refuses what is not named. */
function renderHealthCheckAccept({ service }: ServiceView, { names }: RenderOptions): readonly ListedRule[] {
  if (service.healthCheckNodePort === 0) return [];
  const list = { id: chainId("filter", names.fixed("NODEPORTS")) };
  const note = comment(`${service.namespace}/${service.name} health check node port`);
  return [{ list, rule: rule("-p tcp", note, `-m tcp --dport ${service.healthCheckNodePort}`, "-j ACCEPT") }];
}
