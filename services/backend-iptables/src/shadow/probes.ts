import type { Family } from "@kpng/model/address.ts";
import { isIn } from "@kpng/model/cidr.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { TracedPacket } from "@kpng/packet-tracer/trace.ts";
import type { PodTraffic } from "@kpng/service-plan/service-plan.ts";
import type { Frontend, FrontendKey } from "./frontends.ts";
import type { NodeFacts } from "./node-facts.ts";
import { pickInside, pickStranger } from "./pick-address.ts";

/** Who sends: a process in the node's network, a pod of the cluster, an endpoint of the Service itself, somebody else. */
export type Sender = "node" | "pod" | "itself" | "outside";

/** A packet that both rulesets are asked about. */
export interface Probe {
  readonly frontend: Frontend;
  /** *Shape:* `cluster IP`, `node port` …; what the address is to the Service. */
  readonly addressKind: string;
  readonly sender: Sender;
  readonly packet: TracedPacket;
}

export interface ProbeWorld {
  readonly family: Family;
  readonly view: NodeView;
  readonly facts: NodeFacts;
  /** How our rules recognize pods. */
  readonly podTraffic: PodTraffic | undefined;
  /** The node's address; undefined if unknown. */
  readonly nodeAddress: string | undefined;
}

/** More clients than these are not told apart for one frontend. */
const maxSources = 64;

/**
 * Returns the packets that show whether two rulesets treat a frontend alike: from the node itself, from a pod, from
 * outside, from each range and over each interface that either ruleset tells apart, and from each endpoint on the node to
 * itself. Node ports are asked for at the node's address and at localhost; the first of a protocol at every address.
 *
 * Pure. `frontends` are those of both rulesets, of one family.
 */
export function* probesOf(
  frontends: ReadonlyMap<FrontendKey, Frontend>,
  world: ProbeWorld,
): Generator<Probe, void, void> {
  const names = nameAddresses(world.view, world.family);
  const hairpins = endpointsOnNode(world.view, world.family);
  const probed = new Set<string>();
  for (const frontend of frontends.values()) {
    const isFirst = !probed.has(frontend.protocol);
    if (frontend.address === undefined) probed.add(frontend.protocol);
    for (const destination of destinationsOf(frontend, world, isFirst)) {
      const addressKind = frontend.address === undefined ? "node port" : (names.get(frontend.address) ?? "address");
      const own = hairpins.get(serviceOf(frontend.servicePort)) ?? [];
      for (const { sender, source, inInterface } of clientsOf(frontend, destination, own, world)) {
        const packet = { protocol: frontend.protocol, source, destination, port: frontend.port, inInterface };
        yield { frontend, addressKind, sender, packet };
      }
    }
  }
}

/** Joins the frontends of two rulesets; what tells clients apart in either is kept. */
export function joinFrontends(
  a: ReadonlyMap<FrontendKey, Frontend>,
  b: ReadonlyMap<FrontendKey, Frontend>,
): ReadonlyMap<FrontendKey, Frontend> {
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
  readonly sender: Sender;
  readonly source: string;
  readonly inInterface: string | undefined;
}

function* clientsOf(
  frontend: Frontend,
  destination: string,
  ownEndpoints: readonly string[],
  world: ProbeWorld,
): Generator<Client, void, void> {
  const { facts, podTraffic } = world;
  const isLocal = facts.localCIDRs.some((cidr) => isIn(destination, cidr));
  // What a node sends to an address of its own, it sends from that address.
  const nodeSource = isLocal ? destination : (world.nodeAddress ?? facts.addresses[0]);
  if (nodeSource !== undefined) yield { sender: "node", source: nodeSource, inInterface: undefined };
  if (isLoopback(destination)) return;
  const sources = [...frontend.sources].slice(0, maxSources);
  const podRange = podRangeOf(world);
  const ranges = podRange === undefined ? sources : [...sources, podRange];
  const outside = pickStranger(world.family, ranges);
  if (outside !== undefined) yield { sender: "outside", source: outside, inInterface: facts.outInterface(outside) };
  const pod = podRange === undefined ? ownEndpoints[0] : pickInside(podRange, sources);
  const podLink = (address: string): string => {
    if (podTraffic?.kind === "interface") return podTraffic.name;
    return podTraffic?.kind === "interfacePrefix" ? `${podTraffic.prefix}0` : facts.outInterface(address);
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
    // The node's own addresses do not come in from outside.
    if (facts.localCIDRs.some((local) => isIn(source, local))) continue;
    const isPod = podRange !== undefined && isIn(source, podRange);
    yield {
      sender: isPod ? "pod" : "outside",
      source,
      inInterface: isPod ? podLink(source) : facts.outInterface(source),
    };
  }
  for (const source of ownEndpoints) {
    // A pod in the node's network has no way to itself but the node's.
    if (facts.localCIDRs.some((local) => isIn(source, local))) continue;
    yield { sender: "itself", source, inInterface: podLink(source) };
  }
}

function destinationsOf(
  { address }: Frontend,
  { family, facts, nodeAddress }: ProbeWorld,
  isFirst: boolean,
): readonly string[] {
  if (address !== undefined) return [address];
  const loopback = family === "v4" ? "127.0.0.1" : "::1";
  const isOwn = nodeAddress !== undefined && facts.localCIDRs.some((cidr) => isIn(nodeAddress, cidr));
  const main = isOwn ? [nodeAddress] : facts.addresses.slice(0, 1);
  return [...new Set([...main, ...(isFirst ? facts.addresses.slice(0, 32) : []), loopback])];
}

/** Where pods' addresses come from: the node's own range before the cluster's. */
function podRangeOf({ family, view, podTraffic }: ProbeWorld): string | undefined {
  const ofNode = view.node?.podCIDRs.find((cidr) => cidr.includes(":") === (family === "v6"));
  if (podTraffic?.kind === "source") {
    const [network = ""] = (ofNode ?? "").split("/");
    return ofNode !== undefined && isIn(network, podTraffic.cidr) ? ofNode : podTraffic.cidr;
  }
  return ofNode;
}

function isLoopback(address: string): boolean {
  return address === "::1" || address.startsWith("127.");
}

/** *Shape of the argument:* `namespace/name:port`. */
export function serviceOf(servicePort: string): string {
  const at = servicePort.indexOf(":");
  return at < 0 ? servicePort : servicePort.slice(0, at);
}

function nameAddresses(view: NodeView, family: Family): ReadonlyMap<string, string> {
  const names = new Map<string, string>();
  for (const { service } of view.services.values()) {
    for (const address of service.loadBalancerIPs?.[family] ?? []) names.set(address, "load-balancer IP");
    for (const address of service.externalIPs?.[family] ?? []) names.set(address, "external IP");
    for (const address of service.clusterIPs?.[family] ?? []) names.set(address, "cluster IP");
  }
  return names;
}

/** By Service: addresses of its endpoints that run here and that it sends packets to. */
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
