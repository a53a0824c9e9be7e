import type { Family } from "@kpng/model/address.ts";
import type { KubeObject } from "../../cluster/api-client.ts";
import type { Dice } from "./dice.ts";
import { blockAddress, respell, sourceRanges } from "./world.ts";

export interface RawPort {
  readonly name?: string;
  readonly port: number;
  readonly protocol: "TCP" | "UDP" | "SCTP";
  readonly nodePort?: number;
  readonly targetPort?: number | string;
}

export interface GeneratedService {
  readonly object: KubeObject;
  readonly ports: readonly RawPort[];
  /** Whether the Service is deleted afterwards, and remains because of its finalizer. */
  readonly isLeaving: boolean;
  /** Status that the load balancer controller would write; undefined for none. */
  readonly status: unknown;
}

/** First node port. Each state has `portsPerState` of them. */
const firstNodePort = 30_000;
const portsPerState = 4;

/** Largest number of states with distinct node ports in the API server's default range. */
export const maxStates = Math.floor(2767 / portsPerState);

/** Returns a Service that kube-proxy serves, of any kind that the API server accepts. */
export function makeService(dice: Dice, namespace: string, state: number): GeneratedService {
  const type = dice.weigh({ ClusterIP: 30, NodePort: 15, LoadBalancer: 55 });
  const served = makeFamilies(dice);
  const hasNodePorts = type === "NodePort" || (type === "LoadBalancer" && dice.chance(75));
  const ports = makePorts(dice, state, hasNodePorts);
  const spell = dice.chance(15) ? respell : (address: string) => address;
  const externalIPs = dice.chance(type === "ClusterIP" ? 55 : 35) ? makeExternalIPs(dice, state).map(spell) : [];
  const isExternal = type !== "ClusterIP" || externalIPs.length > 0;
  const externalPolicy = dice.pick(["Cluster", "Local"]);
  const clusterIPs = served.ipFamilies.map((family) =>
    spell(blockAddress("cluster", family === "IPv4" ? "v4" : "v6", state)),
  );
  // Deleted by its user, but served until its load balancer is cleaned up.
  const isLeaving = dice.chance(10);
  const isOthers = dice.chance(8);
  const object = {
    apiVersion: "v1",
    kind: "Service",
    metadata: {
      name: "web",
      namespace,
      labels: isOthers ? { "service.kubernetes.io/service-proxy-name": "other" } : {},
      ...(isLeaving ? { finalizers: ["service.kubernetes.io/load-balancer-cleanup"] } : {}),
    },
    spec: {
      type,
      ...served,
      clusterIP: clusterIPs[0],
      clusterIPs,
      ports,
      externalIPs,
      internalTrafficPolicy: dice.pick(["Cluster", "Local"]),
      ...(isExternal ? { externalTrafficPolicy: externalPolicy } : {}),
      ...makeAffinity(dice),
      ...(type === "LoadBalancer" ? makeBalancer(dice, state, hasNodePorts, externalPolicy) : {}),
      ...(dice.chance(10) ? { publishNotReadyAddresses: true } : {}),
      ...(dice.chance(20) ? { trafficDistribution: dice.pick(["PreferClose", "PreferSameNode"]) } : {}),
    },
  };
  return { object, ports, isLeaving, status: type === "LoadBalancer" ? makeStatus(dice, state, spell) : undefined };
}

function makeFamilies(dice: Dice) {
  const ipFamilies = dice.pick([["IPv4"], ["IPv6"], ["IPv4", "IPv6"], ["IPv6", "IPv4"], ["IPv4", "IPv6"]]);
  return { ipFamilyPolicy: ipFamilies.length === 1 ? "SingleStack" : "RequireDualStack", ipFamilies };
}

function makePorts(dice: Dice, state: number, hasNodePorts: boolean): RawPort[] {
  const base = firstNodePort + state * portsPerState;
  const nodePort = (offset: number) => (hasNodePorts ? { nodePort: base + offset } : {});
  const target = () => (dice.chance(50) ? { targetPort: dice.pick<number | string>([8080, "web", "main"]) } : {});
  const protocol = dice.weigh({ TCP: 50, UDP: 30, SCTP: 20 });
  if (dice.chance(35)) {
    const name = dice.chance(60) ? {} : { name: "http" };
    return [{ ...name, port: 80, protocol, ...nodePort(0), ...target() }];
  }
  const main: RawPort = { name: "main", port: 80, protocol, ...nodePort(0), ...target() };
  const twin: RawPort = { name: "twin", port: 80, protocol: protocol === "TCP" ? "UDP" : "TCP", ...nodePort(0) };
  const admin: RawPort = { name: "admin", port: 443, protocol: "TCP", ...nodePort(1), ...target() };
  return dice.pick([[main, twin], [main, admin], [main, twin, admin], [admin]]);
}

function makeExternalIPs(dice: Dice, state: number): string[] {
  const addresses = (["v4", "v6"] as const).map((family) => blockAddress("external", family, state));
  const second = blockAddress("external", "v4", state + 0x4000);
  return dice.pick([addresses, addresses.slice(0, 1), addresses.slice(1), [...addresses, second, second]]);
}

function makeAffinity(dice: Dice) {
  if (!dice.chance(30)) return {};
  if (dice.chance(30)) return { sessionAffinity: "ClientIP" };
  const timeoutSeconds = dice.pick([1, 600, 86_400]);
  return { sessionAffinity: "ClientIP", sessionAffinityConfig: { clientIP: { timeoutSeconds } } };
}

function makeBalancer(dice: Dice, state: number, hasNodePorts: boolean, externalPolicy: string) {
  const kinds = Object.keys(sourceRanges) as [string, ...string[]];
  return {
    ...(hasNodePorts ? {} : { allocateLoadBalancerNodePorts: false }),
    ...(dice.chance(85) ? { loadBalancerSourceRanges: sourceRanges[dice.pick(kinds)] } : {}),
    ...(externalPolicy === "Local" ? { healthCheckNodePort: firstNodePort + state * portsPerState + 3 } : {}),
  };
}

function makeStatus(dice: Dice, state: number, spell: (address: string) => string): unknown {
  const address = (family: Family, offset = 0) => spell(blockAddress("loadBalancer", family, state + offset));
  const entry = (ip: string) => {
    const mode = dice.weigh({ none: 35, VIP: 40, Proxy: 25 });
    return mode === "none" ? { ip } : { ip, ipMode: mode };
  };
  const all = [
    entry(address("v4")),
    entry(address("v6")),
    entry(address("v4", 0x2000)),
    { hostname: "lb.example.org" },
  ];
  return { loadBalancer: { ingress: dice.chance(12) ? [] : dice.some(all, 65) } };
}
