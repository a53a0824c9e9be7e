import type { ServiceView } from "@kpng/model/node-view.ts";
import { type Service, type ServicePort, serviceKey } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { makeAllowedSources } from "./allowed-sources.ts";
import { makeEndpointSets } from "./endpoint-sets.ts";
import { planHealthCheck } from "./plan-health-check.ts";
import { isAddress, isPortNumber, isServed, validAddresses } from "./served.ts";
import type {
  AllowedSources,
  EndpointSetName,
  Frontend,
  NodePlan,
  Route,
  Sender,
  ServicePlan,
  ServicePortPlan,
} from "./service-plan.ts";

/**
 * The largest number of external IPs × ports of a Service in one family. Further external IPs are omitted. An object of
 * 100 KB may have 2500 of each: the 6 million frontends of its plan took 90 s without a turn of the event loop, and
 * 2.4 GB.
 */
export const maxExternalFrontends = 10_000;

/**
 * Returns what the node must do with the packets of one Service. Backends translate the plan to rules, so kube-proxy's
 * semantics are in this package once and not in each backend.
 *
 * Pure; O(ports × endpoints). Equal views and node plans give equal plans. Source: kube-proxy `iptables/proxier.go`,
 * syncProxyRules.
 */
export function planService(view: ServiceView, node: NodePlan): ServicePlan {
  const { service } = view;
  const { family } = node;
  const { createdSeconds, uid } = service;
  const key = serviceKey(service);
  if (!isServed(service, family))
    return { key, createdSeconds, uid, family, ports: [], hairpin: [], healthCheck: undefined };
  const externalIPs = validAddresses(service.externalIPs, family);
  const servedIPs = externalIPs.slice(0, Math.floor(maxExternalFrontends / Math.max(1, service.ports.length)));
  const addresses = serviceAddresses(service, servedIPs, node);
  const taken = new Set<string>();
  const ports = service.ports.flatMap((port, index) =>
    isValidPort(port) ? planPort(view, port, index, addresses, taken, node) : [],
  );
  const hairpin = ports.length === 0 ? [] : hairpinAddresses(view, ports, node);
  return {
    key,
    createdSeconds,
    uid,
    family,
    ports,
    hairpin,
    healthCheck: planHealthCheck(service, view.endpoints, family),
    ...(servedIPs.length < externalIPs.length ? { omittedExternalIPs: externalIPs.length - servedIPs.length } : {}),
  };
}

/** An address that all ports of a Service answer at. */
type ServiceAddress = Pick<Frontend, "kind" | "address" | "sources">;

function serviceAddresses(service: Service, externalIPs: readonly string[], node: NodePlan): readonly ServiceAddress[] {
  const { family } = node;
  const toAddress = (kind: Frontend["kind"], sources?: ReadonlyMap<string, AllowedSources>) => (address: string) => ({
    kind,
    address,
    sources: sources?.get(address),
  });
  const loadBalancerIPs = validAddresses(service.loadBalancerIPs, family);
  const sources = makeAllowedSources(service, loadBalancerIPs, node);
  // An address that status names is a load balancer's, also as an external IP; as in kube-proxy, for all clients.
  const kindOf = (address: string) => (loadBalancerIPs.includes(address) ? "loadBalancerIP" : "externalIP");
  return [
    ...validAddresses(service.clusterIPs, family).map(toAddress("clusterIP")),
    ...externalIPs.map((address) => toAddress(kindOf(address))(address)),
    ...loadBalancerIPs.map(toAddress("loadBalancerIP", sources)),
  ];
}

/**
 * Plans one Service port. `taken` are the frontends of the ports before this one; of two equal frontends only the first
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
  const hasEndpoints = sets.cluster.length + sets.local.length > 0 || portHasEndpoints?.[index]?.[node.family] === true;
  const routeTo = (set: EndpointSetName, isMasqueraded: boolean): Route =>
    sets[set].length > 0 ? { kind: "balance", set, isMasqueraded } : { kind: hasEndpoints ? "drop" : "refuse" };
  const internal = internalRoutes(service, node, routeTo);
  const external = externalRoutes(service, sets.cluster.length > 0, routeTo);
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

type Routes = Readonly<Record<Sender, Route>>;
type RouteTo = (set: EndpointSetName, isMasqueraded: boolean) => Route;

/**
 * Routes of cluster IPs. Senders other than pods are masqueraded: a router may send the cluster IPs' range to any node,
 * and the endpoint's answer must return through the node that the packet was sent to.
 */
function internalRoutes(service: Service, { isMasqueradeAll, podTraffic }: NodePlan, routeTo: RouteTo): Routes {
  const set = service.internalTrafficPolicy === "Local" ? "local" : "cluster";
  const other = routeTo(set, isMasqueradeAll || podTraffic !== undefined);
  return { pod: routeTo(set, isMasqueradeAll), node: other, outside: other };
}

/**
 * Routes of external IPs, load-balancer IPs and node ports.
 *
 * Policy Cluster: the endpoint may be on another node, so its answer must return through this one: masquerade. Policy
 * Local: the client's address is kept. Pods and the node are treated as if their packets had gone out to the load
 * balancer and come back, and may use all endpoints. The node's packets are masqueraded, because the address that they
 * were sent to may be one of its own and so be their source.
 */
function externalRoutes(service: Service, hasClusterEndpoints: boolean, routeTo: RouteTo): Routes {
  if (service.externalTrafficPolicy !== "Local") {
    const route = routeTo("cluster", true);
    return { pod: route, node: route, outside: route };
  }
  const outside = routeTo("local", false);
  if (!hasClusterEndpoints) return { pod: outside, node: outside, outside };
  return { pod: routeTo("cluster", false), node: routeTo("cluster", true), outside };
}

/**
 * Addresses of usable endpoints on this node. Endpoints on other nodes are included where a pod's packet is not
 * masqueraded on its way to an external address: a pod of another node may send one by way of this node.
 */
function hairpinAddresses(
  { endpoints }: ServiceView,
  ports: readonly ServicePortPlan[],
  { family, podTraffic }: NodePlan,
): readonly string[] {
  const isUnmasqueraded = ({ kind, routes: { pod } }: Frontend): boolean =>
    kind !== "clusterIP" && pod.kind === "balance" && !pod.isMasqueraded;
  const includesForeign = podTraffic !== undefined && ports.some(({ frontends }) => frontends.some(isUnmasqueraded));
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
