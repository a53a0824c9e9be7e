import { addressAndPort } from "@kpng/model/address.ts";
import type {
  EndpointAddress,
  EndpointSetName,
  Frontend,
  Route,
  Sender,
  ServicePlan,
  ServicePortPlan,
  WholeAddressPlan,
  WholeEndpoint,
  WholeFrontend,
} from "@kpng/service-plan/service-plan.ts";
import {
  addressBucket,
  type ChainNames,
  nodePortBucket,
  type RenderOptions,
  type SharedList,
  type WholeAddressChain,
  wholeAddressList,
  wholeAddressParents,
} from "./chains.ts";
import {
  type ChainId,
  chainId,
  comment,
  host,
  ifPod,
  ifPort,
  ifProtocol,
  masquerade,
  oneIn,
  reject,
  rule,
} from "./rule.ts";

/**
 * Renders the iptables rules of one Service in one address family.
 *
 * The rules differ from kube-proxy's in three points. Endpoints have no chains of their own. Packets that an endpoint
 * sends to itself through a Service are masqueraded by rules in POSTROUTING. SERVICES and NODEPORTS are divided into
 * buckets (see `SharedList`).
 *
 * Pure; O(endpoints of all ports).
 */
export function renderService(
  { key, ports, whole, hairpin, healthCheck }: ServicePlan,
  options: RenderOptions,
): RenderedService {
  const { names, node } = options;
  const chains = new Map<ChainId, readonly string[]>();
  const listed: ListedRule[] = [];
  for (const port of whole === undefined ? ports : [...ports, whole]) {
    const ofPort = portChains(port, names);
    for (const [chain, rules] of renderPortChains(port, ofPort, options)) chains.set(chainId("nat", chain), rules);
    listed.push(...port.frontends.flatMap((frontend) => renderFrontend(port, frontend, ofPort, options)));
  }
  for (const address of hairpin) {
    const cidr = host(node.family, address);
    const list = addressBucket("HAIRPIN", names, node.family, address);
    listed.push({ list, rule: rule(`-s ${cidr}`, `-d ${cidr}`, masquerade) });
  }
  if (healthCheck !== undefined) {
    // The node's own firewall may reject a port for which there is no accepting rule.
    const list = { id: chainId("filter", names.fixed("NODEPORTS")) };
    const note = comment(`${key} health check node port`);
    listed.push({ list, rule: rule("-p tcp", note, ifPort("TCP", healthCheck.port), "-j ACCEPT") });
  }
  return { chains, listed };
}

/** A Service port, or all ports and protocols of the addresses that a Service takes as a whole. */
interface Balanced extends Pick<ServicePortPlan | WholeAddressPlan, "name" | "protocol" | "port" | "affinitySeconds"> {
  readonly sets: Readonly<Record<EndpointSetName, readonly (EndpointAddress | WholeEndpoint)[]>>;
  readonly frontends: readonly (Frontend | WholeFrontend)[];
}

function* renderPortChains(
  port: Balanced,
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

/**
 * Renders the rules that mark packets to cluster IPs for masquerading: either all packets, or only those not sent by
 * pods.
 */
function renderClusterIPMasquerade(
  { name, protocol, port, frontends }: Balanced,
  { internalRoutes }: PortChains,
  { node, names }: RenderOptions,
): readonly string[] {
  if (internalRoutes?.outside.kind !== "balance" || !internalRoutes.outside.isMasqueraded) return [];
  const { pod } = internalRoutes;
  const isForAll = node.podTraffic === undefined || (pod.kind === "balance" && pod.isMasqueraded);
  const match = isForAll ? { source: "", interface: "" } : ifPod(node.podTraffic, "! ");
  return frontends.flatMap(({ kind, address }) =>
    kind !== "clusterIP" || address === undefined
      ? []
      : rule(
          match.source,
          `-d ${host(node.family, address)}`,
          match.interface,
          ifProtocol(protocol),
          comment(`${name} cluster IP`),
          ifPort(protocol, port),
          `-j ${names.fixed("MARK-MASQ")}`,
        ),
  );
}

/** A rule that one Service adds to a list shared by all Services, e.g. the chain that leads cluster IPs to Services. */
interface ListedRule {
  readonly list: SharedList;
  readonly rule: string;
}

/** The rules that one Service adds to the iptables rules of one address family. */
export interface RenderedService {
  /** Rules of each chain that belongs to this Service alone. */
  readonly chains: ReadonlyMap<ChainId, readonly string[]>;
  readonly listed: readonly ListedRule[];
}

/**
 * The names of a Service port's chains, and the routes that decide which of these chains exist. Packets reach them from
 * the chains that all Services share, e.g. SERVICES.
 */
interface PortChains {
  /** The chains that choose an endpoint, one per set of endpoints ("cluster", "local") that some route uses. */
  readonly sets: ReadonlyMap<EndpointSetName, string>;
  /**
   * The chain for packets to all frontends except cluster IPs; undefined if no route in `externalRoutes` leads to an
   * endpoint.
   */
  readonly external: string | undefined;
  /** The chain that admits only clients in source ranges. It exists only if a load-balancer IP has source ranges. */
  readonly firewall: string;
  /** Routes of cluster IPs, which lead all senders to the same set; undefined if the port has no cluster IP. */
  readonly internalRoutes: Routes | undefined;
  /** Routes of all other frontends; undefined if the port has none. */
  readonly externalRoutes: Routes | undefined;
}

/** The route of packets from each kind of sender. */
export type Routes = Readonly<Record<Sender, Route>>;

/**
 * Names the chains of a Service port. The routes of one cluster IP and one other frontend suffice, because all cluster
 * IPs of a port have the same routes, and so have all its other frontends.
 */
function portChains({ name, protocol, frontends }: Balanced, names: ChainNames): PortChains {
  const chain = names.ofServicePort(name, protocol);
  const internalRoutes = frontends.find(({ kind }) => kind === "clusterIP")?.routes;
  const externalRoutes = frontends.find(({ kind }) => kind !== "clusterIP")?.routes;
  const used = new Set([...usedSets(internalRoutes), ...usedSets(externalRoutes)]);
  const sets = new Map<EndpointSetName, string>();
  if (used.has("cluster")) sets.set("cluster", chain("SVC"));
  if (used.has("local")) sets.set("local", chain("SVL"));
  const isServed = usedSets(externalRoutes).length > 0;
  return { sets, external: isServed ? chain("EXT") : undefined, firewall: chain("FW"), internalRoutes, externalRoutes };
}

function usedSets(routes: Routes | undefined): readonly EndpointSetName[] {
  if (routes === undefined) return [];
  return [routes.pod, routes.node, routes.outside].flatMap((route) => (route.kind === "balance" ? route.set : []));
}

/**
 * Renders the rules of a chain that chooses an endpoint. Each endpoint has one rule, which does the DNAT.
 *
 * kube-proxy gives each endpoint a chain of its own. Without such chains, iptables-nft loads rules 26 times as fast.
 * The price is that, with client affinity, two rules per endpoint name its client list.
 *
 * With client affinity, each endpoint has a second rule. These rules come first, so that a returning client gets its
 * previous endpoint instead of a random one. The k-th of n rules matches with probability 1/(n−k+1), and the last one
 * always, so each endpoint gets 1/n of the connections.
 *
 * `isNamed` is true if a preceding rule of the chain already has the comment with the name of the Service port.
 */
function renderEndpointRules(
  port: Balanced,
  endpoints: readonly (EndpointAddress | WholeEndpoint)[],
  { names, node }: RenderOptions,
  isNamed = false,
): readonly string[] {
  const { affinitySeconds } = port;
  const protocol = ifProtocol(port.protocol);
  const mask = node.family === "v4" ? "255.255.255.255" : "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
  const targets = endpoints.map(({ address, port: number }) => {
    const text = number === undefined ? address : addressAndPort(address, number);
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

/**
 * Renders the chain EXT of a Service port, for packets to a node port, an external IP or a load-balancer IP. Cluster
 * IPs have no such chain: `renderFrontend` leads them directly to the chain that chooses an endpoint.
 *
 * First come the senders whose route differs from that of outside clients, then all others. Packets that reach the end
 * of the chain are dropped or refused by the chain EXTERNAL-SERVICES in table filter.
 */
function renderExternalChain(
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

/**
 * Renders the chain FW of a Service port, which lets only clients in the source ranges of a load-balancer IP pass.
 * Packets that reach the end of the chain get no endpoint, and the chain PROXY-FIREWALL in table filter drops them.
 * Accepted packets go on to the chain that `renderExternalChain` renders.
 *
 * `filtered` contains the port's frontends with source ranges; there must be at least one.
 */
function renderFirewallChain(
  name: string,
  filtered: readonly (Frontend | WholeFrontend)[],
  externalChain: string,
  { names, node: { family } }: RenderOptions,
): readonly string[] {
  const note = comment(`${name} loadbalancer IP`);
  // Kubernetes has one list of ranges for all addresses; a state file may have one for each address.
  const isForAll = filtered.every(({ sources }) => sources === filtered[0]?.sources);
  const allowed = (isForAll ? filtered.slice(0, 1) : filtered).flatMap(({ address = "", sources }) => {
    const destination = isForAll ? "" : `-d ${host(family, address)}`;
    const ownHosts = sources?.ownAddresses.map((each) => host(family, each)) ?? [];
    return [...(sources?.ranges ?? []), ...ownHosts].map((source) =>
      rule(`-s ${source}`, destination, note, `-j ${externalChain}`),
    );
  });
  return [...allowed, comment(`other traffic to ${name} will be dropped by ${names.fixed("PROXY-FIREWALL")}`)];
}

const notes = {
  clusterIP: "cluster IP",
  externalIP: "external IP",
  loadBalancerIP: "loadbalancer IP",
  nodePort: "",
} as const;

/**
 * Renders the rules that lead from a frontend to the chains of its Service port, and the rule that refuses or drops the
 * packets from outside clients that no chain takes. Table nat can neither refuse nor drop packets, so such a packet
 * passes nat and is stopped in filter.
 */
function renderFrontend(
  port: Balanced,
  frontend: Frontend | WholeFrontend,
  chains: PortChains,
  options: RenderOptions,
): readonly ListedRule[] {
  const { kind, sources, routes } = frontend;
  const { outside } = routes;
  const isInternal = kind === "clusterIP";
  const internal = outside.kind === "balance" ? chains.sets.get(outside.set) : undefined;
  const served = isInternal ? internal : chains.external;
  const firewall = sources === undefined || served === undefined ? undefined : chains.firewall;
  const inList = (list: WholeAddressChain, note: string, target: string): readonly ListedRule[] =>
    frontend.protocol === undefined
      ? wholeAddressRules(port, frontend, list, note, target, options)
      : [portRule(port, frontend, list, note, target, options)];
  const verdicts = isInternal ? "WHOLE-SERVICES" : "WHOLE-EXTERNAL";
  return [
    ...(served === undefined ? [] : inList("WHOLE", notes[kind], firewall ?? served)),
    ...(firewall === undefined ? [] : inList("WHOLE-FIREWALL", `traffic not accepted by ${firewall}`, "DROP")),
    ...(outside.kind === "refuse" ? inList(verdicts, "has no endpoints", reject(options.node.family)) : []),
    ...(outside.kind === "drop" ? inList(verdicts, "has no local endpoints", "DROP") : []),
  ];
}

/**
 * Renders a rule for a whole address, which comes after the rules of ports. A port without endpoints has no rule in
 * table nat, so each list first returns packets to ports that have frontends.
 */
function wholeAddressRules(
  { name }: Balanced,
  { address, except }: WholeFrontend,
  chain: WholeAddressChain,
  note: string,
  target: string,
  { names, node }: RenderOptions,
): readonly ListedRule[] {
  const list = wholeAddressList(chain, names);
  const destination = `-d ${host(node.family, address)}`;
  const text = comment(`${name} ${chain === "WHOLE" ? "whole " : ""}${note}`);
  return [
    ...except.map(({ protocol, port }) => ({
      list,
      rule: rule(destination, ifProtocol(protocol), ifPort(protocol, port), "-j RETURN"),
    })),
    { list, rule: rule(destination, text, `-j ${target}`) },
  ];
}

/** Renders a rule for an address and port, or for a node port, in the parent of the list for whole addresses. */
function portRule(
  { name }: Balanced,
  { address, protocol, port }: Frontend,
  list: WholeAddressChain,
  note: string,
  target: string,
  { names, node }: RenderOptions,
): ListedRule {
  const isNat = list === "WHOLE";
  const bucket = (): SharedList =>
    address === undefined
      ? nodePortBucket(names, protocol, port)
      : addressBucket("SERVICES", names, node.family, address);
  return {
    list: isNat ? bucket() : { id: chainId("filter", names.fixed(wholeAddressParents[list])) },
    rule: rule(
      address === undefined ? "" : `-d ${host(node.family, address)}`,
      ifProtocol(protocol),
      comment(`${name} ${note}`.trimEnd()),
      address === undefined && !isNat ? "-m addrtype --dst-type LOCAL" : "",
      ifPort(protocol, port),
      `-j ${target}`,
    ),
  };
}
