import { type Family, toAddressSet } from "@kpng/model/address.ts";
import { SourceKind } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { type Protocol, type Service, type ServicePort, serviceKey } from "@kpng/model/service.ts";
import { FrontendClaims, frontendId } from "@kpng/service-plan/frontend-claims.ts";
import { isLoopback, planNode } from "@kpng/service-plan/plan-node.ts";
import { planService, servesNodePorts } from "@kpng/service-plan/plan-service.ts";
import type { Frontend, NodePlan, ServicePlan } from "@kpng/service-plan/service-plan.ts";
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
  const { destination, port, protocol } = packet;
  const node = makeNodePlan(snapshot, nodeName, packet, settings);
  const choosing = choosingNode(snapshot, nodeName);
  const isToNode = isNodeAddress(packet, snapshot, nodeName);
  const plans: PlannedService[] = [];
  const claims = new FrontendClaims();
  for (const service of snapshot.services.values()) {
    if (service.proxyName !== proxyName) continue;
    // Planning all 10 000 Services would block the event loop for 0.1 s.
    const hasNodePort = isToNode && service.ports.some(({ nodePort }) => nodePort === port);
    if (!hasNodePort && !hasAddress(service, packet)) continue;
    // Choosing endpoints would take most of the time; without the port, only the addresses of the Service matter.
    const hasPort = hasNodePort || service.ports.some((each) => each.port === port);
    const slices = hasPort ? slicesOf(snapshot, serviceKey(service)) : [];
    const plan = planService(makeServiceView(service, slices, choosing), node);
    plans.push({ service, plan });
    claims.put(plan);
  }
  const atAddress = findOwner(plans, claims, { address: destination, protocol, port });
  const atNodePort = isToNode ? findOwner(plans, claims, { address: undefined, protocol, port }) : undefined;
  const isServed = servesNodePorts(destination, node);
  // If the frontend is at an address of the node and has no endpoints, the packet reaches the rules for node ports,
  // which come last.
  const isForNodePort = isServed && hasEndpoints(atNodePort) && !hasEndpoints(atAddress);
  if (atAddress !== undefined && !isForNodePort) return { frontend: { ...atAddress, isServed: true, isToNode } };
  if (atNodePort !== undefined) return { frontend: { ...atNodePort, isServed, isToNode } };
  if (isToNode) {
    return { none: `${destination} is an address of the node, and no Service has node port ${port}/${protocol}.` };
  }
  const isThere = ({ address }: Pick<Frontend, "address">): boolean => address === destination;
  const whole = plans.find(({ plan }) => plan.whole?.frontends.some(isThere));
  if (whole !== undefined) {
    return {
      none: `${destination} is an address that ${whole.plan.key} takes as a whole, and no Service has port ${port}/${protocol} there.`,
      verdict:
        "kpng-nft, kpng-iptables and kpng-ebpf send it to an endpoint of the Service, at the same port. Other proxies leave it to the node's routes.",
    };
  }
  const withAddress = plans.find(({ plan }) => plan.ports.some(({ frontends }) => frontends.some(isThere)));
  return {
    none:
      withAddress === undefined
        ? `${destination} is neither an address of a Service that this node serves, nor an address for node ports.`
        : `${destination} is an address of ${withAddress.plan.key}, which has no port ${port}/${protocol}.`,
  };
}

interface PlannedService {
  readonly service: Service;
  readonly plan: ServicePlan;
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
  plans: readonly PlannedService[],
  claims: FrontendClaims,
  place: Pick<Frontend, "address" | "protocol" | "port">,
): Pick<ExplainedFrontend, "service" | "port" | "planned"> | undefined {
  const id = frontendId(place);
  const owner = plans.find(({ plan }) => plan.key === claims.ownerOf(id));
  const planned = owner?.plan.ports.flatMap(({ frontends }) => frontends).find((each) => frontendId(each) === id);
  const port = planned && owner?.service.ports.find((each) => isPortOf(each, planned));
  return owner && planned && port && { service: owner.service, port, planned };
}

function hasEndpoints(found: Pick<ExplainedFrontend, "planned"> | undefined): boolean {
  return found !== undefined && Object.values(found.planned.routes).some(({ kind }) => kind === "balance");
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
