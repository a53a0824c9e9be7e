import type { Family } from "@kpng/model/address.ts";
import { isIn } from "@kpng/model/cidr.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { FirstPacket } from "@kpng/model/packet-outcome.ts";
import { isLoopback } from "@kpng/service-plan/node-port-addresses.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import type { FrontendKey, ProbedFrontend } from "./frontends.ts";
import type { NodeLinks } from "./node-links.ts";
import { pickInside, pickStranger } from "./pick-address.ts";

/** A process in the node's network, a pod of the cluster, an endpoint of the Service itself, or a client outside. */
export type ProbeSender = "node" | "pod" | "itself" | "outside";

/** A packet whose outcome is compared. */
export interface Probe {
  readonly frontend: ProbedFrontend;
  /** `cluster IP`, `external IP`, `load-balancer IP`, `node port`; `address` if no Service of the view has it. */
  readonly addressKind: string;
  readonly sender: ProbeSender;
  readonly packet: FirstPacket;
}

interface ProbedNode {
  readonly view: NodeView;
  readonly node: NodePlan;
  readonly links: NodeLinks;
}

const maxSources = 64;

/**
 * Returns the packets that show whether both sides treat a frontend alike: from the node itself, from a pod, from
 * outside, from each range and over each interface that either side distinguishes, and from each endpoint on the node
 * to itself. Node ports are probed at the node's address and at localhost; the first of a protocol at every address.
 *
 * `comparePackets` traces each packet through both sides. Separate from it, because this file decides what is worth
 * comparing. Pure. `frontends` are the frontends of both sides, of one family.
 */
export function* probesOf(
  frontends: ReadonlyMap<FrontendKey, ProbedFrontend>,
  probed: ProbedNode,
): Generator<Probe, void, void> {
  const { view, node } = probed;
  const names = nameAddresses(view, node.family);
  const hairpins = endpointsOnNode(view, node.family);
  const protocols = new Set<string>();
  for (const frontend of frontends.values()) {
    const isFirst = !protocols.has(frontend.protocol);
    if (frontend.address === undefined) protocols.add(frontend.protocol);
    for (const destination of destinationsOf(frontend, probed, isFirst)) {
      const addressKind = frontend.address === undefined ? "node port" : (names.get(frontend.address) ?? "address");
      const own = hairpins.get(serviceOf(frontend.servicePort)) ?? [];
      for (const { sender, source, inInterface } of clientsOf(frontend, destination, own, probed)) {
        const packet = { protocol: frontend.protocol, source, destination, port: frontend.port, inInterface };
        yield { frontend, addressKind, sender, packet };
      }
    }
  }
}

/** Joins the frontends of both sides, with the clients that either side distinguishes. */
export function joinFrontends(
  a: ReadonlyMap<FrontendKey, ProbedFrontend>,
  b: ReadonlyMap<FrontendKey, ProbedFrontend>,
): ReadonlyMap<FrontendKey, ProbedFrontend> {
  const joined = new Map(a);
  for (const [key, frontend] of b) {
    const other = joined.get(key);
    if (other === undefined) joined.set(key, frontend);
    else {
      joined.set(key, {
        ...frontend,
        servicePort: frontend.servicePort === "" ? other.servicePort : frontend.servicePort,
        sources: other.sources.union(frontend.sources),
        interfaces: other.interfaces.union(frontend.interfaces),
      });
    }
  }
  return joined;
}

interface Client {
  readonly sender: ProbeSender;
  readonly source: string;
  readonly inInterface: string | undefined;
}

/** Yields the senders that may be treated differently at a frontend. */
function* clientsOf(
  frontend: ProbedFrontend,
  destination: string,
  ownEndpoints: readonly string[],
  probed: ProbedNode,
): Generator<Client, void, void> {
  const { node, links } = probed;
  const { podTraffic, family } = node;
  const isLocal = links.localCIDRs.some((cidr) => isIn(destination, cidr));
  // The node sends from the destination address itself if that address is one of its own.
  const nodeSource = isLocal ? destination : (node.nodeAddress ?? links.addresses[0]);
  if (nodeSource !== undefined) yield { sender: "node", source: nodeSource, inInterface: undefined };
  if (isLoopback(destination)) return;
  const sources = [...frontend.sources].slice(0, maxSources);
  const podRange = podRangeOf(probed);
  const ranges = podRange === undefined ? sources : [...sources, podRange];
  const outside = pickStranger(family, ranges);
  if (outside !== undefined) yield { sender: "outside", source: outside, inInterface: links.outInterface(outside) };
  const pod = podRange === undefined ? ownEndpoints[0] : pickInside(podRange, sources);
  const podLink = (address: string): string => {
    if (podTraffic?.kind === "interface") return podTraffic.name;
    return podTraffic?.kind === "interfacePrefix" ? `${podTraffic.prefix}0` : links.outInterface(address);
  };
  if (pod !== undefined) {
    yield { sender: "pod", source: pod, inInterface: podLink(pod) };
    for (const pattern of frontend.interfaces) {
      yield { sender: "pod", source: pod, inInterface: pattern.replace(/\+$/, "0") };
    }
  }
  for (const cidr of sources) {
    if (cidr === podRange) continue;
    const source = pickInside(cidr, ranges);
    // Packets from the node's own addresses do not arrive from outside.
    if (links.localCIDRs.some((local) => isIn(source, local))) continue;
    const isPod = podRange !== undefined && isIn(source, podRange);
    yield {
      sender: isPod ? "pod" : "outside",
      source,
      inInterface: isPod ? podLink(source) : links.outInterface(source),
    };
  }
  for (const source of ownEndpoints) {
    // A pod in the node's network sends as the node.
    if (links.localCIDRs.some((local) => isIn(source, local))) continue;
    yield { sender: "itself", source, inInterface: podLink(source) };
  }
}

function destinationsOf({ address }: ProbedFrontend, { node, links }: ProbedNode, isFirst: boolean): readonly string[] {
  if (address !== undefined) return [address];
  const { family, nodeAddress } = node;
  const loopback = family === "v4" ? "127.0.0.1" : "::1";
  const isOwn = nodeAddress !== undefined && links.localCIDRs.some((cidr) => isIn(nodeAddress, cidr));
  const main = isOwn ? [nodeAddress] : links.addresses.slice(0, 1);
  return [...new Set([...main, ...(isFirst ? links.addresses.slice(0, 32) : []), loopback])];
}

/** Returns the range of pods' addresses: that of the node if known, else that of the cluster. */
function podRangeOf({ view, node: { family, podTraffic } }: ProbedNode): string | undefined {
  const ofNode = view.node?.podCIDRs.find((cidr) => cidr.includes(":") === (family === "v6"));
  if (podTraffic?.kind === "source") {
    const [network = ""] = (ofNode ?? "").split("/");
    return ofNode !== undefined && isIn(network, podTraffic.cidr) ? ofNode : podTraffic.cidr;
  }
  return ofNode;
}

/** Returns the key of the Service of a Service port. *Shape of the argument:* `namespace/name:port`. */
export function serviceOf(servicePort: string): string {
  const at = servicePort.indexOf(":");
  return at < 0 ? servicePort : servicePort.slice(0, at);
}

/** Returns the kind of each address of a Service, e.g. "cluster IP". */
function nameAddresses(view: NodeView, family: Family): ReadonlyMap<string, string> {
  const names = new Map<string, string>();
  for (const { service } of view.services.values()) {
    for (const address of service.loadBalancerIPs?.[family] ?? []) names.set(address, "load-balancer IP");
    for (const address of service.externalIPs?.[family] ?? []) names.set(address, "external IP");
    for (const address of service.clusterIPs?.[family] ?? []) names.set(address, "cluster IP");
  }
  return names;
}

/** Addresses of the usable endpoints on this node, by Service. */
function endpointsOnNode(view: NodeView, family: Family): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, readonly string[]>();
  for (const [key, { endpoints }] of view.services) {
    const own = endpoints.flatMap(({ isOnNode, use, addresses }) =>
      isOnNode && (use.cluster || use.local) ? addresses[family].slice(0, 1) : [],
    );
    if (own.length > 0) found.set(key, [...new Set(own)]);
  }
  return found;
}
