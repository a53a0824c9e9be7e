import { type Family, isIn, toAddressSet } from "@kpng/model/address.ts";
import { SourceKind } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import type { Node } from "@kpng/model/node.ts";
import { type Protocol, type Service, type ServicePort, serviceKey } from "@kpng/model/service.ts";
import { FrontendClaims, frontendId } from "@kpng/service-plan/frontend-claims.ts";
import { isLoopback, planNode } from "@kpng/service-plan/plan-node.ts";
import { planService, servesNodePorts } from "@kpng/service-plan/plan-service.ts";
import type { Frontend, NodePlan } from "@kpng/service-plan/service-plan.ts";
import { type Snapshot, slicesOf } from "../store/snapshot.ts";
import { choosingNode, makeServiceView, makeViewNode } from "../view/service-view.ts";

/** First packet of a connection, as it reaches a node. */
export interface Packet {
  readonly family: Family;
  readonly protocol: Protocol;
  readonly source: SourceKind;
  /** Undefined for an arbitrary sender of this kind. */
  readonly sourceAddress: string | undefined;
  readonly destination: string;
  readonly port: number;
}

/** Options of the node's proxy that an explanation assumes, decoded from kpng.inspect.v1.ProxySettings. */
export interface ExplainSettings {
  readonly clusterCIDRs: readonly string[];
  /** True if the proxy masquerades all traffic to cluster IPs (`--masquerade-all`). */
  readonly isMasqueradeAll: boolean;
  /** CIDRs of the node addresses that accept node ports; empty for all addresses. */
  readonly nodePortAddresses: readonly string[];
}

/** Classifies a sender by its address. */
export function sourceKindOf(address: string, node: Node | undefined, settings: ExplainSettings): SourceKind {
  if (node?.addresses.includes(address) || isLoopback(address)) return SourceKind.NODE;
  return isInAny(address, settings.clusterCIDRs) ? SourceKind.POD : SourceKind.OUTSIDE;
}

/** True if the proxy treats the sender as part of the cluster, so that its connections are not masqueraded. */
export function countsAsPod({ source, sourceAddress }: Packet, settings: ExplainSettings): boolean {
  return sourceAddress === undefined ? source === SourceKind.POD : isInAny(sourceAddress, settings.clusterCIDRs);
}

function isInAny(address: string, cidrs: readonly string[]): boolean {
  return cidrs.some((cidr) => isIn(address, cidr));
}

/**
 * Finds the frontend that a packet is addressed to. As in kube-proxy's iptables mode, addresses of Services come before
 * node ports. Pure; O(Services + endpoints of the Services with this frontend).
 */
export function findFrontend(
  snapshot: Snapshot,
  nodeName: string,
  proxyName: string,
  packet: Packet,
  settings: ExplainSettings,
): FoundFrontend {
  const { destination, port: number, protocol } = packet;
  const node = makeNodePlan(snapshot, nodeName, packet, settings);
  const isToNode = isNodeAddress(packet, snapshot, nodeName);
  const byAddress: Service[] = [];
  const byNodePort: Service[] = [];
  let serviceWithAddress: Service | undefined;
  const withWhole: Service[] = [];
  for (const service of snapshot.services.values()) {
    if (service.proxyName !== proxyName) continue;
    // Planning all 10 000 Services would block the event loop for 0.1 s.
    const hasNodePort = isToNode && service.ports.some(({ nodePort }) => nodePort === number);
    if (!hasNodePort && !hasAddress(service, packet)) continue;
    // Frontends do not depend on endpoints, and choosing endpoints would take most of the time.
    const { ports, whole } = planService({ service, endpoints: [] }, node);
    const frontends = ports.flatMap((port) => port.frontends);
    if (whole?.frontends.some(({ address }) => address === destination)) withWhole.push(service);
    if (frontends.some(({ address }) => address === destination)) serviceWithAddress = service;
    const matching = frontends.filter((each) => each.port === number && each.protocol === protocol);
    if (matching.some(({ address }) => address === destination)) byAddress.push(service);
    else if (isToNode && matching.some(({ kind }) => kind === "nodePort")) byNodePort.push(service);
  }
  const place = { protocol, port: number };
  const atAddress = findOwner(snapshot, nodeName, byAddress, node, { address: destination, ...place });
  if (atAddress !== undefined && (hasEndpoints(atAddress.planned) || byNodePort.length === 0)) {
    return { frontend: { ...atAddress, isServed: true, isToNode } };
  }
  const atNodePort = findOwner(snapshot, nodeName, byNodePort, node, { address: undefined, ...place });
  const isServed = servesNodePorts(destination, node);
  // If the frontend is at an address of the node and has no endpoints, the packet reaches the rules for node ports,
  // which come last.
  const isForNodePort = atNodePort !== undefined && isServed && hasEndpoints(atNodePort.planned);
  if (atAddress !== undefined && !isForNodePort) return { frontend: { ...atAddress, isServed: true, isToNode } };
  if (atNodePort !== undefined) {
    return { frontend: { ...atNodePort, isServed, isToNode } };
  }
  if (isToNode) {
    return { none: `${destination} is an address of the node, and no Service has node port ${number}/${protocol}.` };
  }
  const [asking] = withWhole;
  if (asking !== undefined) {
    return {
      none: `${destination} is an address that ${serviceKey(asking)} takes as a whole, and no Service has port ${number}/${protocol} there.`,
      verdict:
        "kpng-nft, kpng-iptables and kpng-ebpf send it to an endpoint of the Service, at the same port. Other proxies leave it to the node's routes.",
    };
  }
  if (serviceWithAddress !== undefined) {
    return {
      none: `${destination} is an address of ${serviceKey(serviceWithAddress)}, which has no port ${number}/${protocol}.`,
    };
  }
  return {
    none: `${destination} is neither an address of a Service that this node serves, nor an address for node ports.`,
  };
}

function hasAddress(service: Service, { family, destination }: Packet): boolean {
  const { clusterIPs, externalIPs, loadBalancerIPs } = service;
  return [clusterIPs, externalIPs, loadBalancerIPs].some((set) => set?.[family].includes(destination));
}

/** The frontend that a packet is addressed to. */
export interface ExplainedFrontend {
  readonly service: Service;
  readonly port: ServicePort;
  /** The plan of the frontend. */
  readonly planned: Frontend;
  /**
   * False for a node port on an address that does not accept node ports. Packets to such an address are still rejected
   * or dropped.
   */
  readonly isServed: boolean;
  /** True if the packet's destination is an address of the node. */
  readonly isToNode: boolean;
}

/**
 * The frontend of a packet, or a sentence that explains why it has none. `verdict` is another sentence, for packets that
 * some proxies do not leave to the node's routes.
 */
type FoundFrontend =
  | { readonly frontend: ExplainedFrontend }
  | { readonly none: string; readonly verdict?: string | undefined };

/** Returns the Service that owns a frontend. Several Services may claim a frontend, but only one of them owns it. */
function findOwner(
  snapshot: Snapshot,
  nodeName: string,
  claimants: readonly Service[],
  node: NodePlan,
  place: Pick<Frontend, "address" | "protocol" | "port">,
): Pick<ExplainedFrontend, "service" | "port" | "planned"> | undefined {
  const id = frontendId(place);
  const claims = new FrontendClaims();
  const choosing = choosingNode(snapshot, nodeName);
  const plans = claimants.map((service) => {
    const slices = slicesOf(snapshot, serviceKey(service));
    const plan = planService(makeServiceView(service, slices, choosing), node);
    claims.put(plan);
    return { service, plan };
  });
  for (const { service, plan } of plans) {
    if (claims.ownerOf(id) !== plan.key) continue;
    for (const { frontends } of plan.ports) {
      const planned = frontends.find((each) => frontendId(each) === id);
      const port = planned && service.ports.find((each) => isPortOf(each, planned));
      if (planned !== undefined && port !== undefined) return { service, port, planned };
    }
  }
  return undefined;
}

function hasEndpoints({ routes: { pod, node, outside } }: Frontend): boolean {
  return [pod, node, outside].some(({ kind }) => kind === "balance");
}

function isPortOf({ port, nodePort, protocol }: ServicePort, planned: Frontend): boolean {
  return protocol === planned.protocol && (planned.kind === "nodePort" ? nodePort : port) === planned.port;
}

/**
 * Returns the plan of a proxy. One cluster CIDR suffices, because plans of Services depend only on whether there is
 * any.
 */
function makeNodePlan(snapshot: Snapshot, nodeName: string, { family }: Packet, settings: ExplainSettings): NodePlan {
  const { clusterCIDRs, isMasqueradeAll, nodePortAddresses: cidrs } = settings;
  const addresses = snapshot.nodes.get(nodeName)?.addresses ?? [];
  const plan = planNode(
    {
      isMasqueradeAll,
      detectLocalMode: "ClusterCIDR",
      clusterCIDRs: [],
      podBridgeInterface: "",
      podInterfaceNamePrefix: "",
      isLoopbackNodePorts: true,
      nodePortAddresses: { kind: "cidrs", cidrs },
    },
    family,
    { node: makeViewNode(snapshot, nodeName), localAddresses: toAddressSet([...addresses, "127.0.0.1", "::1"]).set },
  );
  return { ...plan, podTraffic: { kind: "source", cidr: clusterCIDRs[0] ?? "" } };
}

function isNodeAddress({ destination, source }: Packet, snapshot: Snapshot, nodeName: string): boolean {
  if (isLoopback(destination)) return source === SourceKind.NODE;
  return snapshot.nodes.get(nodeName)?.addresses.includes(destination) === true;
}
