import { isIn } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import { FrontendClaims, type FrontendId, frontendId } from "../frontend-claims.ts";
import { isAllowed, meetsVerdict, servesNodePorts } from "../plan-service.ts";
import type {
  Frontend,
  NodePlan,
  PodTraffic,
  Route,
  Sender,
  ServicePlan,
  ServicePortPlan,
  WholeAddressPlan,
  WholeFrontend,
} from "../service-plan.ts";

/**
 * The first packet of a connection, as it arrives at a node or leaves a process on it.
 *
 * Two packages compute the possible {@link PacketOutcome}s of a packet: `service-plan` from the Services of a node, and
 * `packet-tracer` from the text of its rules. Tests compare the two, so they share these types.
 */
export interface FirstPacket {
  /** *Shape:* as in rules: `tcp`, `udp`, `sctp`. */
  readonly protocol: string;
  readonly source: string;
  readonly destination: string;
  readonly port: number;
  /** The interface that it arrives on; undefined if the node itself sends it. */
  readonly inInterface: string | undefined;
}

/** A possible fate of the first packet of a connection. */
export type PacketOutcome =
  | {
      readonly kind: "to";
      readonly address: string;
      readonly port: number;
      readonly isMasqueraded: boolean;
      /** How long the client stays with this endpoint, if affinity led here; absent if chance did. *Unit:* seconds. */
      readonly affinitySeconds?: number;
    }
  | { readonly kind: "refused" }
  | { readonly kind: "dropped" }
  /** No rule changed its destination or stopped it; `isAccepted` if a rule let it pass. */
  | { readonly kind: "untouched"; readonly isAccepted?: true };

/**
 * A mode of kube-proxy. The modes differ for packets that no plan is about: nftables mode refuses unknown ports of
 * cluster IPs, drops unallocated cluster IPs, and accepts nothing that a firewall drops.
 */
type ProxyMode = "iptables" | "nftables";

/**
 * Returns every possible outcome of a packet by the plans of a node, each once, as a mode of kube-proxy would produce
 * it. Tests compare it with the outcomes that the packet tracer finds in the rules of a proxy.
 *
 * The order of precedence: a Service's address and port, its whole address, a node port, a port for health checks. A
 * packet that no plan is about is untouched, unless nftables mode refuses or drops it.
 *
 * Pure; O(endpoints of the frontend).
 */
export function outcomes(
  planned: PlannedNode,
  packet: FirstPacket,
  mode: ProxyMode = "iptables",
): readonly PacketOutcome[] {
  const { frontends, healthCheckPorts, node } = planned;
  const { destination, port } = packet;
  const protocol = packet.protocol.toUpperCase() as Protocol;
  const byAddress = frontends.get(frontendId({ address: destination, protocol, port }));
  if (byAddress !== undefined) return frontendOutcomes(byAddress, planned, packet, mode);
  const whole = isLocal(destination, planned) ? undefined : planned.whole.get(destination);
  if (whole !== undefined) return frontendOutcomes(whole, planned, packet, mode);
  if (mode === "nftables" && (packet.inInterface === undefined || !isLocal(destination, planned))) {
    if (planned.clusterIPs.has(destination)) return [{ kind: "refused" }];
    if (node.serviceCIDRs.some((cidr) => isIn(destination, cidr))) return [{ kind: "dropped" }];
  }
  if (!isLocal(destination, planned)) return [{ kind: "untouched" }];
  const byNodePort = frontends.get(frontendId({ address: undefined, protocol, port }));
  if (byNodePort !== undefined) {
    if (servesNodePorts(destination, node)) return frontendOutcomes(byNodePort, planned, packet, mode);
    // In iptables mode, only table nat is limited to the addresses for node ports.
    return [mode === "iptables" ? verdict(byNodePort.frontend.routes.outside) : { kind: "untouched" }];
  }
  if (mode === "nftables") return [{ kind: "untouched" }];
  const isHealthCheck = packet.protocol === "tcp" && healthCheckPorts.has(port);
  return [isHealthCheck ? { kind: "untouched", isAccepted: true } : { kind: "untouched" }];
}

/** Returns which kind of sender a packet comes from, for the routes of a frontend. */
export function senderOf(
  { source, inInterface }: Pick<FirstPacket, "source" | "inInterface">,
  { node, localCIDRs }: Pick<PlannedNode, "node" | "localCIDRs">,
): Sender {
  if (node.podTraffic !== undefined && isPodTraffic(node.podTraffic, source, inInterface)) return "pod";
  return localCIDRs.some((cidr) => isIn(source, cidr)) ? "node" : "outside";
}

function isPodTraffic(traffic: PodTraffic, source: string, inInterface: string | undefined): boolean {
  switch (traffic.kind) {
    case "source":
      return isIn(source, traffic.cidr);
    case "interface":
      return inInterface === traffic.name;
    case "interfacePrefix":
      return inInterface?.startsWith(traffic.prefix) === true;
  }
}

function frontendOutcomes(
  planned: PlannedFrontend | PlannedWholeAddress,
  node: PlannedNode,
  packet: FirstPacket,
  mode: ProxyMode,
): readonly PacketOutcome[] {
  const { frontend } = planned;
  const { sources, routes } = frontend;
  // nftables mode compares sources whether or not the Service has endpoints.
  const isServed =
    mode === "nftables" || [routes.pod, routes.node, routes.outside].some(({ kind }) => kind === "balance");
  if (isServed && sources !== undefined && !isAllowed(packet.source, sources)) return [{ kind: "dropped" }];
  const route = routes[senderOf(packet, node)];
  if (route.kind === "balance") return endpointOutcomes(planned, route, node, packet);
  const isMet =
    mode === "nftables" || meetsVerdict(frontend, packet.inInterface === undefined, isLocal(packet.destination, node));
  return [isMet ? verdict(route) : { kind: "untouched" }];
}

function verdict(route: Route): PacketOutcome {
  if (route.kind === "balance") return { kind: "untouched" };
  return { kind: route.kind === "refuse" ? "refused" : "dropped" };
}

function endpointOutcomes(
  { service, port }: PlannedFrontend | PlannedWholeAddress,
  route: Extract<Route, { kind: "balance" }>,
  node: PlannedNode,
  { source, inInterface, port: samePort }: FirstPacket,
): readonly PacketOutcome[] {
  const reached = port.sets[route.set].map(({ address, port: number = samePort }) => {
    const endpoint = { address, port: number };
    const isHairpin = endpoint.address === source && service.hairpin.includes(source);
    // A packet that is delivered on the node does not pass POSTROUTING, which masquerades.
    const isDelivered = inInterface !== undefined && isLocal(endpoint.address, node);
    return { kind: "to", ...endpoint, isMasqueraded: !isDelivered && (route.isMasqueraded || isHairpin) } as const;
  });
  const { affinitySeconds } = port;
  return affinitySeconds === undefined
    ? reached
    : reached.flatMap((outcome) => [outcome, { ...outcome, affinitySeconds }]);
}

function isLocal(address: string, { localCIDRs }: Pick<PlannedNode, "localCIDRs">): boolean {
  return localCIDRs.some((cidr) => isIn(address, cidr));
}

/** A frontend with the plans that it belongs to. */
interface PlannedFrontend {
  readonly service: ServicePlan;
  readonly port: ServicePortPlan;
  readonly frontend: Frontend;
}

/** A whole address with the plans that it belongs to. */
interface PlannedWholeAddress {
  readonly service: ServicePlan;
  readonly port: WholeAddressPlan;
  readonly frontend: WholeFrontend;
}

/** All plans of one node in one family, indexed so that `outcomes` finds the frontend of a packet. */
export interface PlannedNode {
  readonly node: NodePlan;
  /** CIDRs of the node's own addresses, loopback included. */
  readonly localCIDRs: readonly string[];
  /** Each frontend once, with the Service that is served if several claim it. */
  readonly frontends: ReadonlyMap<FrontendId, PlannedFrontend>;
  /** Each whole address once, with the Service that is served if several claim it. */
  readonly whole: ReadonlyMap<string, PlannedWholeAddress>;
  /** Addresses of frontends that are cluster IPs. */
  readonly clusterIPs: ReadonlySet<string>;
  /** TCP ports for health checks of load balancers. */
  readonly healthCheckPorts: ReadonlySet<number>;
}

/**
 * Indexes the plans of a node. Pure; O(frontends). The plans stay in memory as long as the result.
 */
export function indexPlans(node: NodePlan, localCIDRs: readonly string[], plans: Iterable<ServicePlan>): PlannedNode {
  const frontends = new Map<FrontendId, PlannedFrontend>();
  const whole = new Map<string, PlannedWholeAddress>();
  const healthCheckPorts = new Set<number>();
  const clusterIPs = new Set<string>();
  const claims = new FrontendClaims();
  const kept = [...plans];
  for (const plan of kept) claims.put(plan);
  for (const service of kept) {
    if (service.healthCheck !== undefined) healthCheckPorts.add(service.healthCheck.port);
    for (const frontend of service.whole?.frontends ?? []) {
      const { address } = frontend;
      if (service.whole === undefined || claims.ownerOf(frontendId(frontend)) !== service.key) continue;
      whole.set(address, { service, port: service.whole, frontend });
    }
    for (const port of service.ports) {
      for (const frontend of port.frontends) {
        const id = frontendId(frontend);
        if (frontend.kind === "clusterIP" && frontend.address !== undefined) clusterIPs.add(frontend.address);
        if (claims.ownerOf(id) === service.key) frontends.set(id, { service, port, frontend });
      }
    }
  }
  return { node, localCIDRs, frontends, whole, clusterIPs, healthCheckPorts };
}
