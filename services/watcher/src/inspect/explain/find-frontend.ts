import { parseCidr } from "@kpng/model/address.ts";
import type { Node } from "@kpng/model/node.ts";
import { type Service, type ServicePort, serviceKey } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { isFamilyServed } from "./explain-service.ts";
import { isInCidr } from "./in-cidr.ts";
import { nodeAddresses, type Packet, type ProxySettings } from "./packet.ts";

/** What a destination is to a Service. */
export type FrontendKind = "cluster-ip" | "external-ip" | "load-balancer-ip" | "node-port";

/** A service port that a packet is for. */
export interface Frontend {
  readonly kind: FrontendKind;
  readonly service: Service;
  readonly port: ServicePort;
  /** Who may use it; undefined for everybody. */
  readonly sourceRanges: readonly string[] | undefined;
  /**
   * False for a node port on an address of the node that takes none: nothing is forwarded there, but what would be
   * refused or dropped elsewhere is here too.
   */
  readonly isServed: boolean;
}

/** What a packet is for, or a sentence that says why no Service is concerned. */
export type FoundFrontend = { readonly frontend: Frontend } | { readonly none: string };

/**
 * Finds the service port that a packet is for, as kube-proxy's iptables mode does: addresses of Services first, then
 * node ports.
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
  const isOwn = isOwnAddress(packet, node, settings);
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
    const port = isOwn && service.ports.find((each) => each.nodePort === number && each.protocol === protocol);
    if (port) {
      const isServed = isNodePortAddress(packet, settings);
      byNodePort = firstOf(byNodePort, { kind: "node-port", service, port, sourceRanges: undefined, isServed });
    }
  }
  const frontend = byAddress ?? byNodePort;
  if (frontend !== undefined) return { frontend };
  if (isOwn) {
    return { none: `${destination} is an address of the node, and no Service has node port ${number}/${protocol}.` };
  }
  if (addressOf !== undefined) {
    const name = `${addressOf.namespace}/${addressOf.name}`;
    return { none: `${destination} is an address of ${name}, which has no port ${number}/${protocol}.` };
  }
  return { none: `${destination} is no address of a Service that this node serves, and none that takes node ports.` };
}

/** Two Services may claim the same: the first by namespace and name is shown. */
function firstOf(a: Frontend | undefined, b: Frontend): Frontend {
  if (a === undefined) return b;
  return compareText(serviceKey(a.service), serviceKey(b.service)) <= 0 ? a : b;
}

function addressKind(service: Service, { family, destination }: Packet): FrontendKind | undefined {
  if (service.clusterIPs?.[family].includes(destination)) return "cluster-ip";
  if (service.externalIPs?.[family].includes(destination)) return "external-ip";
  return service.loadBalancerIPs?.[family].includes(destination) ? "load-balancer-ip" : undefined;
}

/** A range that holds every address stands for all. Source: kube-proxy `serviceport.go`, newBaseServiceInfo. */
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

function isOwnAddress({ destination, source }: Packet, node: Node | undefined, settings: ProxySettings): boolean {
  return isLoopback(destination) ? source === "node" : nodeAddresses(node, settings).includes(destination);
}

/** Of the node's own addresses, those that take node ports. */
function isNodePortAddress({ destination, family }: Packet, settings: ProxySettings): boolean {
  if (isLoopback(destination) && !(family === "v4" && settings.isLocalhostNodePorts)) return false;
  const { nodePortAddresses } = settings;
  return nodePortAddresses.length === 0 || nodePortAddresses.some((cidr) => isInCidr(destination, cidr));
}

function isLoopback(address: string): boolean {
  return address === "::1" || isInCidr(address, "127.0.0.0/8");
}
