import { isIPv4, isIPv6 } from "node:net";
import { type AddressSet, addressAndPort, type Family, isIn, parseCidr } from "@kpng/model/address.ts";
import { compareText } from "@kpng/model/collections.ts";
import type { EndpointPort } from "@kpng/model/endpoint.ts";
import type { ServiceView, ViewEndpoint } from "@kpng/model/node-view.ts";
import { type Service, type ServicePort, serviceKey } from "@kpng/model/service.ts";
import { isLoopback } from "./plan-node.ts";
import type {
  AllowedSources,
  EndpointAddress,
  EndpointSetName,
  Frontend,
  HealthCheckPlan,
  NodePlan,
  Route,
  Sender,
  ServicePlan,
  ServicePortPlan,
  WholeAddressPlan,
  WholeEndpoint,
  WholeFrontend,
} from "./service-plan.ts";

/**
 * Maximum product of external IPs and ports of a Service in one family. Further external IPs are omitted. An object of
 * 100 KB can contain 2500 of each; planning its 6 million frontends blocked the event loop for 90 s and took 2.4 GB.
 */
export const maxExternalFrontends = 10_000;

/**
 * Returns a plan of what the node must do with packets to one Service. Backends translate the plan to rules, so
 * kube-proxy's semantics exist once, in this package, and not in each backend.
 *
 * Pure; O(ports × endpoints). Equal views and node plans give equal plans. Source: kube-proxy `iptables/proxier.go`,
 * syncProxyRules.
 */
export function planService(view: ServiceView, node: NodePlan): ServicePlan {
  const { service } = view;
  const { family } = node;
  const { createdSeconds, uid } = service;
  const key = serviceKey(service);
  const hasPorts = isServed(service, family);
  const isWhole = service.mapIP && (hasPorts || (service.isHeadless && service.type !== "ExternalName"));
  if (!hasPorts && !isWhole)
    return { key, createdSeconds, uid, family, ports: [], hairpin: [], healthCheck: undefined };
  const externalIPs = validAddresses(service.externalIPs, family);
  const servedIPs = externalIPs.slice(0, Math.floor(maxExternalFrontends / Math.max(1, service.ports.length)));
  const addresses = serviceAddresses(service, servedIPs, node);
  const taken = new Set<string>();
  const ports = (hasPorts ? service.ports : []).flatMap((port, index) =>
    isValidPort(port) ? planPort(view, port, index, addresses, taken, node) : [],
  );
  const whole = isWhole ? planWholeAddresses(view, addresses, node) : undefined;
  const hairpin = ports.length === 0 && whole === undefined ? [] : hairpinAddresses(view, ports, whole, node);
  return {
    key,
    createdSeconds,
    uid,
    family,
    ports,
    ...(whole === undefined ? {} : { whole }),
    hairpin,
    healthCheck: planHealthCheck(view, family),
    ...(servedIPs.length < externalIPs.length ? { omittedExternalIPs: externalIPs.length - servedIPs.length } : {}),
  };
}

/** An address at which all ports of a Service answer. */
type ServiceAddress = Pick<Frontend, "kind" | "address" | "sources">;

/** Returns the addresses of a Service; of two equal ones, `planPort` keeps the first. */
function serviceAddresses(service: Service, externalIPs: readonly string[], node: NodePlan): readonly ServiceAddress[] {
  const { family } = node;
  const toAddress = (kind: Frontend["kind"], sources?: ReadonlyMap<string, AllowedSources>) => (address: string) => ({
    kind,
    address,
    sources: sources?.get(address),
  });
  const loadBalancerIPs = validAddresses(service.loadBalancerIPs, family);
  const sources = makeAllowedSources(service, loadBalancerIPs, node);
  // Source ranges hold at a load-balancer IP that is an external IP, too, as in kube-proxy's nftables mode. In its
  // iptables mode, the rule of the external IP comes first and admits all clients.
  const otherIPs = externalIPs.filter((address) => !loadBalancerIPs.includes(address));
  return [
    ...validAddresses(service.clusterIPs, family).map(toAddress("clusterIP")),
    ...otherIPs.map(toAddress("externalIP")),
    ...loadBalancerIPs.map(toAddress("loadBalancerIP", sources)),
  ];
}

/**
 * Plans one Service port. `taken` contains the frontends of the preceding ports; of two equal frontends, only the first
 * is served.
 */
function planPort(
  view: ServiceView,
  servicePort: ServicePort,
  index: number,
  addresses: readonly ServiceAddress[],
  taken: Set<string>,
  node: NodePlan,
): ServicePortPlan {
  const { service, portHasEndpoints } = view;
  const { name, protocol, port, nodePort } = servicePort;
  const sets = makeEndpointSets(view.endpoints, servicePort, node.family);
  // A watcher that does not send `portHasEndpoints` (KPNG's) leaves only the endpoints in the view to decide.
  const hasEndpoints = sets.cluster.length + sets.local.length > 0 || portHasEndpoints?.[index]?.[node.family] === true;
  const { internal, external } = makeRoutes(service, node, sets, hasEndpoints);
  const frontends: Frontend[] = [];
  const add = (place: ServiceAddress, number: number): void => {
    const id = `${place.address} ${protocol} ${number}`;
    if (taken.has(id)) return;
    taken.add(id);
    frontends.push({ ...place, protocol, port: number, routes: place.kind === "clusterIP" ? internal : external });
  };
  for (const address of addresses) add(address, port);
  if (nodePort !== 0) add({ kind: "nodePort", address: undefined, sources: undefined }, nodePort);
  return {
    name: `${service.namespace}/${service.name}${name === "" ? "" : `:${name}`}`,
    protocol,
    port,
    affinitySeconds: service.clientIPAffinitySeconds,
    sets,
    frontends,
  };
}

/**
 * Plans the addresses that a Service takes as a whole; undefined if it has none in this family. Its endpoints are those
 * that any of its ports may use: a Service without ports, as most headless ones, has them, too.
 */
function planWholeAddresses(
  { service, endpoints, portHasEndpoints = [] }: ServiceView,
  addresses: readonly ServiceAddress[],
  node: NodePlan,
): WholeAddressPlan | undefined {
  const sets = makeWholeSets(endpoints, node.family);
  const hasEndpoints =
    sets.cluster.length + sets.local.length > 0 || portHasEndpoints.some((flags) => flags[node.family]);
  const { internal, external } = makeRoutes(service, node, sets, hasEndpoints);
  const frontends = new Map<string, WholeFrontend>();
  for (const { kind, address, sources } of addresses) {
    if (kind === "nodePort" || address === undefined || frontends.has(address)) continue;
    frontends.set(address, {
      kind,
      address,
      sources,
      routes: kind === "clusterIP" ? internal : external,
      except: [],
    });
  }
  if (frontends.size === 0) return undefined;
  const name = serviceKey(service);
  return { name, affinitySeconds: service.clientIPAffinitySeconds, sets, frontends: [...frontends.values()] };
}

function makeWholeSets(endpoints: readonly ViewEndpoint[], family: Family): WholeAddressPlan["sets"] {
  const inSet = (set: EndpointSetName): readonly WholeEndpoint[] => {
    const addresses = endpoints.flatMap(({ use, addresses }) => (use[set] ? addresses[family].slice(0, 1) : []));
    const valid = addresses.filter((address) => isAddress(address, family));
    return [...new Set(valid)].sort(compareText).map((address) => ({ address }));
  };
  return { cluster: inSet("cluster"), local: inSet("local") };
}

type Routes = Readonly<Record<Sender, Route>>;

/**
 * Returns the routes of cluster IPs, and those of all other frontends. `hasEndpoints`: a usable endpoint exists in the
 * cluster.
 */
function makeRoutes(
  service: Service,
  node: NodePlan,
  sets: Readonly<Record<EndpointSetName, readonly unknown[]>>,
  hasEndpoints: boolean,
): { readonly internal: Routes; readonly external: Routes } {
  const routeTo = (set: EndpointSetName, isMasqueraded: boolean): Route =>
    sets[set].length > 0 ? { kind: "balance", set, isMasqueraded } : { kind: hasEndpoints ? "drop" : "refuse" };
  return {
    internal: internalRoutes(service, node, routeTo),
    external: externalRoutes(service, sets.cluster.length > 0, routeTo),
  };
}

type RouteTo = (set: EndpointSetName, isMasqueraded: boolean) => Route;

/**
 * Returns the routes of cluster IPs. Packets from senders other than pods are masqueraded: a router may send the
 * cluster IP range to any node, and the endpoint's answer must return through the node that received the packet. As in
 * kube-proxy, no packet is masqueraded for that reason if pods cannot be told from other senders.
 */
function internalRoutes(service: Service, { isMasqueradeAll, podTraffic }: NodePlan, routeTo: RouteTo): Routes {
  const set = service.internalTrafficPolicy === "Local" ? "local" : "cluster";
  const other = routeTo(set, isMasqueradeAll || podTraffic !== undefined);
  return { pod: routeTo(set, isMasqueradeAll), node: other, outside: other };
}

/**
 * Returns the routes of external IPs, load-balancer IPs and node ports.
 *
 * With policy Cluster, the endpoint may be on another node, so packets are masqueraded to make its answer return
 * through this node. With policy Local, the client's address is kept. Packets from pods and from the node may reach all
 * endpoints, as if they had gone out to the load balancer and come back. The node's packets are masqueraded, because
 * their destination may be one of the node's own addresses and would then also be their source.
 */
function externalRoutes(service: Service, hasClusterEndpoints: boolean, routeTo: RouteTo): Routes {
  if (service.externalTrafficPolicy !== "Local") {
    const route = routeTo("cluster", true);
    return { pod: route, node: route, outside: route };
  }
  const outside = routeTo("local", false);
  // Our watcher never sends Local endpoints without Cluster endpoints; another one's also serve pods and the node.
  if (!hasClusterEndpoints) return { pod: outside, node: outside, outside };
  return { pod: routeTo("cluster", false), node: routeTo("cluster", true), outside };
}

/**
 * Returns the addresses of usable endpoints on this node. It includes endpoints on other nodes if a pod's packet to an
 * external address is not masqueraded, because a pod on another node may send such a packet by way of this node.
 */
function hairpinAddresses(
  { endpoints }: ServiceView,
  ports: readonly ServicePortPlan[],
  whole: WholeAddressPlan | undefined,
  { family, podTraffic }: NodePlan,
): readonly string[] {
  const isUnmasqueraded = ({ kind, routes: { pod } }: Pick<Frontend, "kind" | "routes">): boolean =>
    kind !== "clusterIP" && pod.kind === "balance" && !pod.isMasqueraded;
  const balanced = whole === undefined ? ports : [...ports, whole];
  const includesForeign = podTraffic !== undefined && balanced.some(({ frontends }) => frontends.some(isUnmasqueraded));
  const addresses = new Set<string>();
  for (const { isOnNode, use, addresses: own } of endpoints) {
    const address = own[family][0];
    if (!(isOnNode || includesForeign) || !(use.cluster || use.local) || address === undefined) continue;
    if (isAddress(address, family)) addresses.add(address);
  }
  return [...addresses].sort(compareText);
}

function isValidPort({ port, nodePort }: ServicePort): boolean {
  return isPortNumber(port) && (nodePort === 0 || isPortNumber(nodePort));
}

/**
 * True if a service proxy serves the Service in this family. `planService` and `planHealthCheck` skip all other
 * Services, and `kpng explain` reports them as not served; all three must agree.
 *
 * Headless Services and ExternalNames are not served, but `planService` plans the whole addresses of a headless Service
 * that asks for them. A Service with cluster IPs of one family is served only in that family; a Service without cluster
 * IPs, which only a state file can contain, is served in both.
 */
export function isServed({ isHeadless, type, clusterIPs }: Service, family: Family): boolean {
  if (isHeadless || type === "ExternalName") return false;
  const other = family === "v4" ? "v6" : "v4";
  return validAddresses(clusterIPs, family).length > 0 || (clusterIPs?.[other].length ?? 0) === 0;
}

/**
 * Returns the valid addresses of a family. An invalid address, e.g. from a state file, would make the kernel refuse all
 * rules.
 */
function validAddresses(addresses: AddressSet | undefined, family: Family): readonly string[] {
  return (addresses?.[family] ?? []).filter((address) => isAddress(address, family));
}

/**
 * True for an address of the family without a zone. The unspecified address does not count, because ipset would refuse
 * a whole update that contains it.
 */
function isAddress(text: string, family: Family): boolean {
  if (text === "0.0.0.0" || text === "::") return false;
  return family === "v4" ? isIPv4(text) : isIPv6(text) && !text.includes("%");
}

function isPortNumber(value: number): boolean {
  return Number.isInteger(value) && value >= 1 && value <= 65_535;
}

/**
 * Returns the endpoints of a Service port for either traffic policy. As in kube-proxy, an endpoint is used only at the
 * first of its addresses. Pure; O(endpoints).
 */
export function makeEndpointSets(
  endpoints: readonly ViewEndpoint[],
  servicePort: ServicePort,
  family: Family,
): ServicePortPlan["sets"] {
  const cluster = new Map<string, EndpointAddress>();
  const local = new Map<string, EndpointAddress>();
  for (const { addresses, ports, use } of endpoints) {
    const address = addresses[family][0];
    if (address === undefined || !(use.cluster || use.local) || !isAddress(address, family)) continue;
    for (const { name, port, protocol } of ports.length === 0 ? targetPorts(servicePort) : ports) {
      if (name !== servicePort.name || (protocol !== undefined && protocol !== servicePort.protocol)) continue;
      const text = addressAndPort(address, port);
      const endpoint = { address, port };
      if (use.cluster) cluster.set(text, endpoint);
      if (use.local) local.set(text, endpoint);
    }
  }
  return { cluster: inOrder(cluster), local: inOrder(local) };
}

/**
 * Returns the ports to use for an endpoint that lists none, which can come only from a state file or another watcher.
 * Source: KPNG `api/localv1/endpoint.go`, PortMapping.
 */
function targetPorts({ name, port, targetPort }: ServicePort): readonly EndpointPort[] {
  if (name !== "" || typeof targetPort !== "number") return [];
  return [{ name, port: targetPort === 0 ? port : targetPort }];
}

function inOrder(endpoints: ReadonlyMap<string, EndpointAddress>): readonly EndpointAddress[] {
  return [...endpoints.keys()].sort(compareText).flatMap((text) => endpoints.get(text) ?? []);
}

/**
 * Returns all endpoints that may answer UDP flows that began earlier, whether or not new flows use them. As in
 * the conntrack table, a flow stays at an endpoint that terminates or that a policy no longer selects. Returns nothing
 * for other protocols, in which the end of a connection is visible.
 *
 * These endpoints are not part of the plan (`planService`), because backends that leave flows to conntrack do not need
 * them; only ipvs and userspace do.
 *
 * Pure; O(endpoints).
 */
export function answeringEndpoints(
  view: ServiceView | undefined,
  { protocol, port }: ServicePortPlan,
  family: Family,
): readonly EndpointAddress[] {
  const servicePort = view?.service.ports.find((one) => one.protocol === protocol && one.port === port);
  if (view === undefined || servicePort === undefined || protocol !== "UDP") return [];
  return makeEndpointSets(answering(view), servicePort, family).cluster;
}

function answering({ endpoints }: Pick<ServiceView, "endpoints">): readonly ViewEndpoint[] {
  // An endpoint that is ready but not serving (publishNotReadyAddresses) gets new flows, so it also keeps its flows.
  return endpoints
    .filter(({ conditions }) => conditions.serving || conditions.ready)
    .map((endpoint) => ({ ...endpoint, use: { cluster: true, local: false } }));
}

/**
 * Returns the addresses of all endpoints that may answer UDP flows to a whole address that began earlier, ascending; see
 * {@link answeringEndpoints}. Pure; O(endpoints).
 */
export function answeringAddresses(
  view: Pick<ServiceView, "endpoints"> | undefined,
  family: Family,
): readonly string[] {
  return view === undefined ? [] : makeWholeSets(answering(view), family).cluster.map(({ address }) => address);
}

/**
 * Returns the clients that each load-balancer IP lets through; an address without an entry lets all clients through.
 * Kubernetes calls these CIDRs the source ranges of a Service.
 */
function makeAllowedSources(
  service: Service,
  loadBalancerIPs: readonly string[],
  { family, nodeAddress }: NodePlan,
): ReadonlyMap<string, AllowedSources> {
  if (service.ipFilters.length === 0) return new Map();
  const addressesByRanges = Map.groupBy(loadBalancerIPs, (address) => sourceRanges(service, family, address).join(" "));
  const allowed = new Map<string, AllowedSources>();
  for (const [text, addresses] of addressesByRanges) {
    if (text === "") continue;
    const ranges = text.split(" ");
    const isNodeAllowed = nodeAddress !== undefined && ranges.some((range) => isIn(nodeAddress, range));
    const sources = { ranges, ownAddresses: isNodeAllowed ? addresses : [] };
    for (const address of addresses) allowed.set(address, sources);
  }
  return allowed;
}

/**
 * Returns the source ranges for one address; an empty list if all clients are let through. That is the case if no range
 * belongs to the family, or if one of the ranges contains every address. Kubernetes has one list for all addresses of a
 * Service; a state file may have one per address.
 *
 * Source: kube-proxy `serviceport.go`, newBaseServiceInfo.
 */
function sourceRanges({ ipFilters }: Service, family: Family, address: string): readonly string[] {
  const ranges = ipFilters
    .filter(({ targetIPs }) => targetIPs === undefined || targetIPs[family].includes(address))
    .flatMap((filter) => filter.sourceRanges)
    .map((range) => parseCidr(range.trim()))
    .flatMap((range) => (range?.family === family ? [range.cidr] : []));
  return ranges.some((range) => range.endsWith("/0")) ? [] : [...new Set(ranges)];
}

/**
 * Returns the health check of a load balancer with external policy Local; undefined for every other Service. A load
 * balancer asks this port which nodes have endpoints.
 *
 * Only ready endpoints count, although traffic may still reach terminating ones; this is how a node drains.
 *
 * *Source:* kube-proxy `endpointschangetracker.go`, LocalReadyEndpoints; `serviceport.go`, HealthCheckNodePort.
 *
 * Pure; O(endpoints) for a Service with a health check, otherwise O(1).
 */
export function planHealthCheck(view: ServiceView, family: Family): HealthCheckPlan | undefined {
  const { service } = view;
  const { type, externalTrafficPolicy, healthCheckNodePort: port } = service;
  if (!isPortNumber(port) || type !== "LoadBalancer" || externalTrafficPolicy !== "Local") return undefined;
  if (!isServed(service, family)) return undefined;
  const local = view.endpoints.filter(({ isOnNode, conditions }) => isOnNode && conditions.ready);
  return { port, localEndpoints: new Set(local.flatMap(({ addresses }) => addresses[family].slice(0, 1))).size };
}

/** True if `source`, a packet's source address, is let through. */
export function isAllowed(source: string, { ranges, ownAddresses }: AllowedSources): boolean {
  return ownAddresses.includes(source) || ranges.some((range) => isIn(source, range));
}

/**
 * True if a packet passes through the rules that refuse or drop in iptables mode. `isFromNode`: the node itself sends
 * the packet (OUTPUT); `isToNode`: its destination is one of the node's addresses (INPUT). The rules for external
 * addresses are not in OUTPUT, because a packet from the node to another machine may still reach a load balancer. The
 * rules for cluster IPs are not in INPUT. *Source:* kube-proxy `iptables/proxier.go`, iptablesJumpChains.
 */
export function meetsVerdict({ kind }: Pick<Frontend, "kind">, isFromNode: boolean, isToNode: boolean): boolean {
  return kind === "clusterIP" ? isFromNode || !isToNode : !isFromNode || isToNode;
}

/** True if node ports are served at `address`, a local address of the node. */
export function servesNodePorts(address: string, { nodePortAddresses, isLoopbackNodePorts }: NodePlan): boolean {
  if (nodePortAddresses !== "all") return nodePortAddresses.includes(address);
  return !isLoopback(address) || isLoopbackNodePorts;
}
