import { parseCidr } from "@kpng/model/address.ts";
import type { Node } from "@kpng/model/node.ts";
import { type Service, type ServicePort, serviceKey } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { isFamilyServed, isForProgram } from "./explain-service.ts";
import { isInCidr } from "./in-cidr.ts";
import { nodeAddresses, type Packet, type ProxySettings } from "./packet.ts";

/**
 * Finds the service port that a packet is addressed to. Like kube-proxy's iptables mode, it checks addresses of
 * Services before node ports.
 *
 * Pure; O(Services).
 */
export function findFrontend(
  services: Iterable<Service>,
  packet: Packet,
  node: Node | undefined,
  settings: ProxySettings,
): FoundFrontend {
  const { family, destination, port: number, protocol } = packet;
  const isOnNode = isNodeAddress(packet, node, settings);
  let addressOf: Service | undefined;
  let byAddress: Frontend | undefined;
  let byNodePort: Frontend | undefined;
  for (const service of services) {
    if (service.isHeadless || service.type === "ExternalName" || !isFamilyServed(service, family)) continue;
    const kind = addressKind(service, packet);
    if (kind !== undefined) {
      const port = service.ports.find((each) => each.port === number && each.protocol === protocol);
      if (port === undefined) addressOf = service;
      else {
        const sourceRanges = rangesOf(service, packet, kind);
        byAddress = firstOf(byAddress, { kind, service, port, sourceRanges, isServed: true });
      }
    }
    const port = isOnNode && service.ports.find((each) => each.nodePort === number && each.protocol === protocol);
    if (port) {
      const isServed = isNodePortAddress(packet, settings);
      byNodePort = firstOf(byNodePort, { kind: "node-port", service, port, sourceRanges: undefined, isServed });
    }
  }
  const frontend = byAddress ?? byNodePort;
  if (frontend !== undefined) return { frontend };
  if (isOnNode) {
    return { none: `${destination} is an address of the node, and no Service has node port ${number}/${protocol}.` };
  }
  if (addressOf !== undefined) {
    const name = `${addressOf.namespace}/${addressOf.name}`;
    return { none: `${destination} is an address of ${name}, which has no port ${number}/${protocol}.` };
  }
  return {
    none: `${destination} is neither an address of a Service that this node serves, nor an address for node ports.`,
  };
}

/** Returns a sentence if the destination is an address of a headless Service with a proxy name. Pure; O(Services). */
export function describeProgram(services: Iterable<Service>, packet: Packet): string | undefined {
  for (const service of services) {
    if (!isForProgram(service) || addressKind(service, packet) === undefined) continue;
    const name = `${packet.destination} is an address of ${serviceKey(service)}`;
    return `${name}, which is for an external program: it is headless and has the proxy name "${service.proxyName}".`;
  }
  return undefined;
}

/** Kind of address or port under which a Service is reached. */
export type FrontendKind = "cluster-ip" | "external-ip" | "load-balancer-ip" | "node-port";

/** The service port that a packet is addressed to. */
export interface Frontend {
  readonly kind: FrontendKind;
  readonly service: Service;
  readonly port: ServicePort;
  /** CIDRs of the senders that are admitted; undefined for all senders. */
  readonly sourceRanges: readonly string[] | undefined;
  /**
   * False for a node port on a node address that does not accept node ports. Nothing is forwarded there, but packets
   * are still rejected or dropped as on other addresses.
   */
  readonly isServed: boolean;
}

/** The frontend of a packet, or a sentence why it has none. */
export type FoundFrontend = { readonly frontend: Frontend } | { readonly none: string };

/** Of two Services with the same address and port, returns the first by namespace and name. */
function firstOf(a: Frontend | undefined, b: Frontend): Frontend {
  if (a === undefined) return b;
  return compareText(serviceKey(a.service), serviceKey(b.service)) <= 0 ? a : b;
}

function addressKind(service: Service, { family, destination }: Packet): FrontendKind | undefined {
  if (service.clusterIPs?.[family].includes(destination)) return "cluster-ip";
  if (service.externalIPs?.[family].includes(destination)) return "external-ip";
  return service.loadBalancerIPs?.[family].includes(destination) ? "load-balancer-ip" : undefined;
}

/**
 * Returns the source ranges for the destination. A range of all addresses admits all senders.
 *
 * Source: kube-proxy `serviceport.go`, newBaseServiceInfo.
 */
function rangesOf(
  { ipFilters }: Service,
  { family, destination }: Packet,
  kind: FrontendKind,
): readonly string[] | undefined {
  if (kind !== "load-balancer-ip") return undefined;
  const ranges = ipFilters
    .filter(({ targetIPs }) => targetIPs === undefined || targetIPs[family].includes(destination))
    .flatMap(({ sourceRanges }) => sourceRanges)
    .map((range) => parseCidr(range.trim()))
    .flatMap((range) => (range?.family === family ? [range.cidr] : []));
  return ranges.length === 0 || ranges.some((range) => range.endsWith("/0")) ? undefined : ranges;
}

function isNodeAddress({ destination, source }: Packet, node: Node | undefined, settings: ProxySettings): boolean {
  return isLoopback(destination) ? source === "node" : nodeAddresses(node, settings).includes(destination);
}

/** True if the destination, an address of the node, accepts node ports. */
function isNodePortAddress({ destination, family }: Packet, settings: ProxySettings): boolean {
  if (isLoopback(destination) && !(family === "v4" && settings.isLocalhostNodePorts)) return false;
  const { nodePortAddresses } = settings;
  return nodePortAddresses.length === 0 || nodePortAddresses.some((cidr) => isInCidr(destination, cidr));
}

function isLoopback(address: string): boolean {
  return address === "::1" || isInCidr(address, "127.0.0.0/8");
}
