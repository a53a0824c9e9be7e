import { type Family, families } from "@kpng/model/address.ts";
import type { KubeObject } from "../../cluster/api-client.ts";
import { Dice, makePods, type RawEndpoint, wildConditions } from "./generate-pods.ts";
import { blockAddress, respell, sourceRanges } from "./world.ts";

interface RawPort {
  readonly name?: string;
  readonly port: number;
  readonly protocol: "TCP" | "UDP" | "SCTP";
  readonly nodePort?: number;
  readonly targetPort?: number | string;
}

interface GeneratedService {
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

interface SliceTarget {
  readonly namespace: string;
  /** Undefined omits the label. */
  readonly service: string | undefined;
  readonly ports: readonly RawPort[];
  readonly labels?: Readonly<Record<string, string>>;
}

interface RawSlicePort {
  readonly name?: string;
  readonly port?: number;
  readonly protocol?: string;
}

/** Returns slices for a Service, as if several controllers and users had written them. */
export function makeSlices(dice: Dice, target: SliceTarget): KubeObject[] {
  return families.flatMap((family) => {
    const pods = makePods(dice, target.namespace, family);
    const twins = dice.some(pods.filter(isFirm), 25).map((pod) => terminatingTwin(dice, pod));
    const parts = Array.from({ length: dice.number(1, 3) }, () => [] as RawEndpoint[]);
    for (const endpoint of dice.shuffle([...pods, ...twins])) {
      // Some endpoints are in two slices, as while a controller moves them.
      for (const part of dice.shuffle(parts).slice(0, dice.chance(20) ? 2 : 1)) part.push(endpoint);
    }
    const basePorts = makeSlicePorts(dice, target.ports);
    const contents = parts.map((endpoints) => ({
      endpoints,
      ports: dice.chance(45) ? basePorts : makeSlicePorts(dice, target.ports),
    }));
    const [first] = contents;
    if (first !== undefined && dice.chance(15)) contents.push({ ...first, ports: first.ports.map(overOther) });
    return contents.map((content, index) =>
      makeSlice(target, `${target.service ?? "nobody"}-${family}-${index}`, family, content),
    );
  });
}

/** Returns a slice of host names, which proxies ignore. */
function makeNameSlice(target: SliceTarget): KubeObject {
  const ports = target.ports.map(({ name = "", port, protocol }) => ({ name, port, protocol }));
  return makeSlice(target, "names", "FQDN", { endpoints: [{ addresses: ["one.example.org"] }], ports });
}

function makeSlice(
  { namespace, service, labels }: SliceTarget,
  name: string,
  family: Family | "FQDN",
  content: { readonly endpoints: readonly RawEndpoint[]; readonly ports: readonly RawSlicePort[] },
): KubeObject {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name,
      namespace,
      labels: {
        ...labels,
        ...(service === undefined ? {} : { "kubernetes.io/service-name": service }),
        "endpointslice.kubernetes.io/managed-by": "kpng-test",
      },
    },
    addressType: { v4: "IPv4", v6: "IPv6", FQDN: "FQDN" }[family],
    ...content,
  };
}

/** Returns whether kube-proxy prefers the endpoint to a terminating one with the same address. */
function isFirm({ conditions }: RawEndpoint): boolean {
  return conditions?.terminating !== true;
}

/**
 * Returns another endpoint with the same address, of a terminating pod. Of two endpoints that are not terminating,
 * kube-proxy uses an arbitrary one, in the order of a map, so no state contains such a pair.
 */
function terminatingTwin(dice: Dice, pod: RawEndpoint): RawEndpoint {
  return {
    ...pod,
    conditions: { ...wildConditions(dice), terminating: true },
    nodeName: dice.pick(["n1", "n2", "n4"]),
  };
}

/** Returns the same port number with another protocol, which is a different port. */
function overOther(port: RawSlicePort): RawSlicePort {
  return { ...port, protocol: port.protocol === "UDP" ? "TCP" : "UDP" };
}

/** Returns the ports of a slice: the numbers of named ports differ, and some ports are missing or useless. */
function makeSlicePorts(dice: Dice, wanted: readonly RawPort[]): RawSlicePort[] {
  if (dice.chance(5)) return [];
  const ports = dice.some(wanted, 82).map(({ name, protocol }, index): RawSlicePort => {
    const port = dice.chance(5) ? {} : { port: 8080 + index * 100 + (dice.chance(25) ? dice.number(1, 3) : 0) };
    const wrong = protocol === "TCP" ? "UDP" : "TCP";
    return {
      ...(name === undefined || (name === "" && dice.chance(50)) ? {} : { name }),
      ...port,
      ...(protocol === "TCP" && dice.chance(30) ? {} : { protocol: dice.chance(8) ? wrong : protocol }),
    };
  });
  return dice.chance(15) ? [...ports, { name: "other", port: 9999, protocol: "TCP" }] : ports;
}

/** Independent cluster state: the content of one namespace. */
export interface GeneratedState {
  readonly number: number;
  readonly namespace: string;
  readonly service: GeneratedService;
  /** Objects that do not affect the Service. */
  readonly others: readonly KubeObject[];
  readonly slices: readonly KubeObject[];
}

/** Returns state `number` of a seed, which does not depend on the number of states. */
export function generateState(seed: number, number: number): GeneratedState {
  const dice = new Dice(Math.imul(seed, 0x9e3779b1) + Math.imul(number, 0x85ebca6b));
  const namespace = `s${number}`;
  const service = makeService(dice, namespace, number);
  const { ports } = service;
  const others: KubeObject[] = [];
  const slices = makeSlices(dice, { namespace, service: "web", ports });
  if (dice.chance(10)) slices.push(makeNameSlice({ namespace, service: "web", ports }));
  if (dice.chance(10)) slices.push(...makeSlices(dice, { namespace, service: "gone", ports }));
  if (dice.chance(10)) slices.push(...makeSlices(dice, { namespace, service: undefined, ports }));
  if (dice.chance(15)) {
    others.push(makeOther(namespace, "headless", { clusterIP: "None", ports: [{ name: "http", port: 80 }] }));
    const labels = { "service.kubernetes.io/headless": "" };
    slices.push(...makeSlices(dice, { namespace, service: "headless", ports, labels }));
  }
  if (dice.chance(10)) {
    const spec = { type: "ExternalName", externalName: "one.example.org", ports: [{ port: 80 }] };
    others.push(makeOther(namespace, "name", spec));
    slices.push(...makeSlices(dice, { namespace, service: "name", ports }));
  }
  return { number, namespace, service, others, slices };
}

function makeOther(namespace: string, name: string, spec: unknown): KubeObject {
  return { apiVersion: "v1", kind: "Service", metadata: { name, namespace }, spec };
}
