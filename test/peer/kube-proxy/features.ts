import { type Family, families } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { isExternallyAccessible, type Service, type ServicePort } from "@kpng/model/service.ts";
import { slicesOf } from "@kpng/watcher/store/snapshot.ts";
import type { ChoosingNode } from "@kpng/watcher/view/choose-endpoints.ts";
import { mergeSlices, type PortEndpoint, portGroup } from "@kpng/watcher/view/merge-slices.ts";
import { choosingNode } from "@kpng/watcher/view/service-view.ts";
import type { KubeObject } from "../../cluster/api-client.ts";
import type { RawEndpoint } from "./generate-pods.ts";
import type { GeneratedState } from "./generate-state.ts";
import type { OurSide } from "./read-views.ts";
import { sourceRanges } from "./world.ts";

interface State {
  readonly spec: Readonly<Record<string, unknown>>;
  readonly labels: Readonly<Record<string, string>>;
  readonly ports: readonly Readonly<Record<string, unknown>>[];
  readonly ingress: readonly Readonly<Record<string, unknown>>[];
  readonly isLeaving: boolean;
  readonly others: readonly string[];
  readonly slices: readonly Slice[];
  /** Endpoints in the slices of the Service. */
  readonly endpoints: readonly RawEndpoint[];
}

type Slice = KubeObject & {
  readonly addressType: string;
  readonly endpoints: readonly RawEndpoint[];
  readonly ports: readonly Readonly<Record<string, unknown>>[];
};

type Features = Readonly<Record<string, (state: State) => boolean>>;

const conditionFeatures: Features = Object.fromEntries(
  (["ready", "serving", "terminating"] as const).flatMap((name) =>
    [true, false, undefined].map((value) => [
      `condition ${name} is ${value ?? "absent"}`,
      ({ endpoints }: State) => endpoints.some(({ conditions }) => conditions?.[name] === value),
    ]),
  ),
);

const rangeFeatures: Features = Object.fromEntries(
  Object.entries(sourceRanges).map(([name, ranges]) => [
    `source ranges: ${name}`,
    ({ spec, ingress }: State) => spec.loadBalancerSourceRanges === ranges && ingress.length > 0,
  ]),
);

/** Features of objects, with the condition that shows each. */
export const objectFeatures: Features = {
  ...conditionFeatures,
  ...rangeFeatures,
  "type ClusterIP": ({ spec }) => spec.type === "ClusterIP",
  "type NodePort": ({ spec }) => spec.type === "NodePort",
  "type LoadBalancer": ({ spec }) => spec.type === "LoadBalancer",
  "load balancer without node ports": ({ spec }) => spec.allocateLoadBalancerNodePorts === false,
  "load balancer without an address": ({ spec, ingress }) => spec.type === "LoadBalancer" && ingress.length === 0,
  "load balancer, mode VIP": ({ ingress }) => ingress.some(({ ipMode }) => ipMode === "VIP"),
  "load balancer, mode Proxy": ({ ingress }) => ingress.some(({ ipMode }) => ipMode === "Proxy"),
  "load balancer, no mode": ({ ingress }) => ingress.some(({ ip, ipMode }) => ip !== undefined && ipMode === undefined),
  "load balancer, host name": ({ ingress }) => ingress.some(({ hostname }) => hostname !== undefined),
  "health check node port": ({ spec }) => spec.healthCheckNodePort !== undefined,
  "external IPs": ({ spec }) => (spec.externalIPs as readonly string[]).length > 0,
  "external IPs of type ClusterIP with policy Local": ({ spec }) =>
    spec.type === "ClusterIP" && spec.externalTrafficPolicy === "Local",
  "external IPs of a family that the Service has not": ({ spec }) =>
    spec.ipFamilyPolicy === "SingleStack" && (spec.externalIPs as readonly string[]).length > 1,
  "an address with an unusual spelling": ({ spec }) => /[A-F]/.test(String(spec.clusterIPs)),
  "a hint for the zone without a name": ({ endpoints }) =>
    endpoints.some(({ hints }) => hints?.forZones?.some(({ name }) => name === "")),
  "IPv4 only": ({ spec }) => String(spec.ipFamilies) === "IPv4",
  "IPv6 only": ({ spec }) => String(spec.ipFamilies) === "IPv6",
  "both families, IPv4 first": ({ spec }) => String(spec.ipFamilies) === "IPv4,IPv6",
  "both families, IPv6 first": ({ spec }) => String(spec.ipFamilies) === "IPv6,IPv4",
  "one number over TCP and UDP": ({ ports }) => ports.some(({ name }) => name === "twin"),
  "named target port": ({ ports }) => ports.some(({ targetPort }) => typeof targetPort === "string"),
  "session affinity": ({ spec }) => spec.sessionAffinity === "ClientIP",
  "session affinity with a custom timeout": ({ spec }) => spec.sessionAffinityConfig !== undefined,
  publishNotReadyAddresses: ({ spec }) => spec.publishNotReadyAddresses === true,
  trafficDistribution: ({ spec }) => spec.trafficDistribution !== undefined,
  "another proxy's Service": ({ labels }) => "service.kubernetes.io/service-proxy-name" in labels,
  "deleted, with a finalizer": ({ isLeaving }) => isLeaving,
  "headless Service": ({ others }) => others.includes("headless"),
  "ExternalName Service": ({ others }) => others.includes("name"),
  "slice of a missing Service": ({ slices }) => slices.some((slice) => serviceOf(slice) === "gone"),
  "slice without a Service name": ({ slices }) => slices.some((slice) => serviceOf(slice) === undefined),
  "slice of host names": ({ slices }) => slices.some(({ addressType }) => addressType === "FQDN"),
  "slice without ports": ({ slices }) => slices.some(({ ports }) => ports.length === 0),
  "slice port without name": ({ slices }) => slices.some(({ ports }) => ports.some(({ name }) => name === undefined)),
  "slice port without number": ({ slices }) => slices.some(({ ports }) => ports.some(({ port }) => port === undefined)),
  "slice port without protocol": ({ slices }) =>
    slices.some(({ ports }) => ports.some(({ protocol }) => protocol === undefined)),
  "slice port that the Service does not have": ({ slices }) =>
    slices.some(({ ports }) => ports.some(({ name }) => name === "other")),
  "endpoint without conditions": ({ endpoints }) => endpoints.some(({ conditions }) => conditions === undefined),
  "draining, and nothing said of serving": ({ endpoints }) =>
    endpoints.some(
      ({ conditions: said }) => said?.ready === false && said.terminating === true && !("serving" in said),
    ),
  "endpoint in two slices": ({ endpoints }) => new Set(endpoints).size < endpoints.length,
  "terminating endpoint with the address of another one": ({ endpoints }) =>
    endpoints.some((one) => endpoints.some((other) => one.addresses === other.addresses && one !== other)),
  "two endpoints with the same addresses in different order": ({ endpoints }) =>
    endpoints.some((one) => endpoints.some((other) => isReversed(one.addresses, other.addresses))),
  "two endpoints with the same second address": ({ endpoints }) =>
    endpoints.some(({ addresses: [a, b] }) => endpoints.some(({ addresses: [c, d] }) => a !== c && b && b === d)),
  "slices that differ only in protocols": ({ slices }) =>
    slices.some((one) => slices.some((other) => one.endpoints === other.endpoints && one.ports !== other.ports)),
  "empty hints": ({ endpoints }) =>
    endpoints.some(({ hints }) => hints !== undefined && Object.keys(hints).length === 0),
  "endpoint without a pod": ({ endpoints }) => endpoints.some(({ targetRef }) => targetRef === undefined),
  "endpoint with a host name": ({ endpoints }) => endpoints.some(({ hostname }) => hostname !== undefined),
};

/** Returns the features of the generated objects, before the API server changes them. */
export function toFeatureState({ service, others, slices }: GeneratedState): State {
  const status = service.status as { readonly loadBalancer: { readonly ingress: State["ingress"] } } | undefined;
  const typed = slices as readonly Slice[];
  return {
    spec: service.object.spec as State["spec"],
    labels: service.object.metadata.labels ?? {},
    ports: service.ports as unknown as State["ports"],
    ingress: status?.loadBalancer.ingress ?? [],
    isLeaving: service.isLeaving,
    others: others.map(({ metadata }) => metadata.name),
    slices: typed,
    endpoints: typed.filter((slice) => serviceOf(slice) === "web").flatMap(({ endpoints }) => endpoints),
  };
}

function serviceOf({ metadata }: KubeObject): string | undefined {
  return metadata.labels?.["kubernetes.io/service-name"];
}

function isReversed(one: readonly string[], other: readonly string[]): boolean {
  return one.length === 2 && one[0] === other[1] && one[1] === other[0];
}

/** One choice of endpoints: for a port and family of a Service, on a node. */
export interface Choosing {
  readonly service: Service;
  readonly port: ServicePort;
  readonly family: Family;
  readonly node: ChoosingNode;
  readonly facets: readonly PortEndpoint[];
  readonly view: NodeView;
}

/**
 * Features of the choice of endpoints, with the condition that shows each. Every branch of choose-endpoints.ts has one.
 */
export const choiceFeatures: Readonly<Record<string, (choosing: Choosing) => boolean>> = {
  "node hints are followed": (c) => usesCluster(c) && followsNodes(c) && !isAllFor(c, "hintedNodes"),
  "node hints are followed where zone hints lead elsewhere": (c) =>
    usesCluster(c) && followsNodes(c) && hasAll(c, "hintedZones") && !isEqual(forMe(c, "nodes"), forMe(c, "zones")),
  "a ready endpoint without node hint switches them off": (c) =>
    usesCluster(c) && forMe(c, "nodes").length > 0 && !hasAll(c, "hintedNodes"),
  "node hints for other nodes only are not followed": (c) =>
    usesCluster(c) && hasAll(c, "hintedNodes") && forMe(c, "nodes").length === 0,
  "zone hints are followed": (c) => usesCluster(c) && followsZones(c) && !isAllFor(c, "hintedZones"),
  "zone hints are followed where node hints cannot be": (c) =>
    usesCluster(c) && followsZones(c) && !isAllFor(c, "hintedZones") && some(ready(c), (f) => f.hintedNodes.length > 0),
  "a ready endpoint without zone hint switches them off": (c) =>
    usesCluster(c) && !followsNodes(c) && forMe(c, "zones").length > 0 && !hasAll(c, "hintedZones"),
  "zone hints for other zones only are not followed": (c) =>
    usesCluster(c) && !followsNodes(c) && c.node.zone !== "" && hasAll(c, "hintedZones") && isNobody(c, "zones"),
  "a node without zone follows no zone hints": (c) =>
    usesCluster(c) && !followsNodes(c) && c.node.zone === "" && hasAll(c, "hintedZones") && isNobody(c, "zones"),
  "an endpoint that is not ready does not affect hints": (c) =>
    usesCluster(c) && (followsNodes(c) || followsZones(c)) && some(unready(c), (f) => f.hintedZones.length === 0),
  "policy Local follows no hints": (c) =>
    usesLocal(c) && some(ready(c).filter(onNode(c)), (f) => followsZones(c) && !f.hintedZones.includes(c.node.zone)),
  "draining endpoints serve a cluster that has no ready one": (c) =>
    usesCluster(c) && ready(c).length === 0 && draining(c).length > 0,
  "draining endpoints serve whatever their hints": (c) =>
    usesCluster(c) && ready(c).length === 0 && some(draining(c), (f) => isHintedElsewhere(f, c.node)),
  "draining endpoints do not serve beside a ready one": (c) =>
    usesCluster(c) && ready(c).length > 0 && draining(c).length > 0,
  "ready endpoints on the node serve policy Local": (c) => usesLocal(c) && some(ready(c), onNode(c)),
  "draining endpoints on the node serve policy Local although others are ready elsewhere": (c) =>
    usesLocal(c) && ready(c).length > 0 && !some(ready(c), onNode(c)) && some(draining(c), onNode(c)),
  "draining endpoints on the node serve policy Local when none is ready": (c) =>
    usesLocal(c) && ready(c).length === 0 && some(draining(c), onNode(c)),
  "draining endpoints on the node do not serve policy Local beside a ready one": (c) =>
    usesLocal(c) && some(ready(c), onNode(c)) && some(draining(c), onNode(c)),
  "an endpoint without a node serves no policy Local": (c) => usesLocal(c) && some(ready(c), (f) => f.nodeName === ""),
  "dropped inside: others have endpoints": (c) => c.service.internalTrafficPolicy === "Local" && isOnlyElsewhere(c),
  "dropped outside: others have endpoints": (c) => isExternalLocal(c) && isOnlyElsewhere(c),
  "pods reach external addresses through endpoints on other nodes": (c) => isExternalLocal(c) && isOnlyElsewhere(c),
  "only policy Local, nothing from outside": (c) => !usesCluster(c) && usesLocal(c) && hasAny(c),
  "refused: no endpoints": (c) => c.facets.length === 0,
  "refused: none that is ready or draining": (c) => c.facets.length > 0 && !hasAny(c),
  "ready although terminating": (c) => some(ready(c), (f) => f.conditions.terminating),
  "ready although not serving": (c) => some(ready(c), (f) => !f.conditions.serving),
  IPv4: (c) => c.family === "v4" && hasAny(c),
  IPv6: (c) => c.family === "v6" && hasAny(c),
  UDP: (c) => c.port.protocol === "UDP" && hasAny(c),
  SCTP: (c) => c.port.protocol === "SCTP" && hasAny(c),
  "an unnamed port": (c) => c.port.name === "" && hasAny(c),
  "an endpoint lacks a port that others have": (c) =>
    hasAny(c) && some(itemsOf(c), ({ ports, addresses }) => addresses[c.family].length > 0 && !some(ports, isFor(c))),
  "an endpoint is used in one way for a port and in another for the next": (c) =>
    some(itemsOf(c), (a) => some(itemsOf(c), (b) => isSamePlace(a, b) && a.use.cluster !== b.use.cluster)),
  "one port name on different numbers": (c) => new Set(c.facets.map(({ port }) => port?.port)).size > 1,
  "an endpoint has several addresses": (c) => some(ready(c), (f) => f.endpoint.addresses[c.family].length > 1),
};

type Test<T> = (item: T) => boolean;

function some<T>(items: readonly T[], test: Test<T>): boolean {
  return items.some(test);
}

function usesCluster({ service }: Choosing): boolean {
  return service.internalTrafficPolicy === "Cluster" || isExternallyAccessible(service);
}

function usesLocal(choosing: Choosing): boolean {
  return choosing.service.internalTrafficPolicy === "Local" || isExternalLocal(choosing);
}

function isExternalLocal({ service }: Choosing): boolean {
  return service.externalTrafficPolicy === "Local" && isExternallyAccessible(service);
}

function ready({ facets }: Choosing): readonly PortEndpoint[] {
  return facets.filter(({ conditions }) => conditions.ready);
}

function unready({ facets }: Choosing): readonly PortEndpoint[] {
  return facets.filter(({ conditions }) => !conditions.ready);
}

function draining(choosing: Choosing): readonly PortEndpoint[] {
  return unready(choosing).filter(({ conditions }) => conditions.serving && conditions.terminating);
}

function hasAny(choosing: Choosing): boolean {
  return ready(choosing).length + draining(choosing).length > 0;
}

function onNode({ node }: Choosing): Test<PortEndpoint> {
  return ({ nodeName }) => nodeName === node.name;
}

function isOnlyElsewhere(choosing: Choosing): boolean {
  return hasAny(choosing) && ![...ready(choosing), ...draining(choosing)].some(onNode(choosing));
}

function forMe(choosing: Choosing, hints: "nodes" | "zones"): readonly PortEndpoint[] {
  const { name, zone } = choosing.node;
  return ready(choosing).filter(({ hintedNodes, hintedZones }) =>
    hints === "nodes" ? hintedNodes.includes(name) : hintedZones.includes(zone),
  );
}

function isNobody(choosing: Choosing, hints: "nodes" | "zones"): boolean {
  return forMe(choosing, hints).length === 0;
}

function hasAll(choosing: Choosing, hints: "hintedNodes" | "hintedZones"): boolean {
  const endpoints = ready(choosing);
  return endpoints.length > 0 && endpoints.every((facet) => facet[hints].length > 0);
}

function followsNodes(choosing: Choosing): boolean {
  return hasAll(choosing, "hintedNodes") && !isNobody(choosing, "nodes");
}

function followsZones(choosing: Choosing): boolean {
  return !followsNodes(choosing) && hasAll(choosing, "hintedZones") && !isNobody(choosing, "zones");
}

/** Returns whether following the hints makes no difference. */
function isAllFor(choosing: Choosing, hints: "hintedNodes" | "hintedZones"): boolean {
  return forMe(choosing, hints === "hintedNodes" ? "nodes" : "zones").length === ready(choosing).length;
}

function isEqual(one: readonly PortEndpoint[], other: readonly PortEndpoint[]): boolean {
  return one.length === other.length && one.every((facet) => other.includes(facet));
}

function isHintedElsewhere(facet: PortEndpoint, node: ChoosingNode): boolean {
  return facet.hintedZones.length > 0 && !facet.hintedZones.includes(node.zone);
}

function itemsOf({ view, service }: Choosing) {
  return view.services.get(`${service.namespace}/${service.name}`)?.endpoints ?? [];
}

type Item = ReturnType<typeof itemsOf>[number];

function isFor({ port }: Choosing): Test<Item["ports"][number]> {
  return ({ name, protocol }) => name === port.name && (protocol ?? port.protocol) === port.protocol;
}

function isSamePlace(a: Item, b: Item): boolean {
  return a !== b && a.addresses.v4[0] === b.addresses.v4[0] && a.addresses.v6[0] === b.addresses.v6[0];
}

/** Number of states that showed each feature. */
export type Coverage = ReadonlyMap<string, number>;

/** Counts the features in the states of a run. */
export function coverageOf(states: readonly GeneratedState[], ours: OurSide): Coverage {
  const counts = new Map([...Object.keys(choiceFeatures), ...Object.keys(objectFeatures)].map((name) => [name, 0]));
  const count = <T>(features: Readonly<Record<string, (item: T) => boolean>>, items: readonly T[]): void => {
    for (const [name, shows] of Object.entries(features)) {
      if (items.some(shows)) counts.set(name, (counts.get(name) ?? 0) + 1);
    }
  };
  for (const state of states) {
    count(objectFeatures, [toFeatureState(state)]);
    count(choiceFeatures, [...choices(state, ours)]);
  }
  return counts;
}

function* choices({ namespace }: GeneratedState, { snapshot, views }: OurSide): Iterable<Choosing> {
  const service = snapshot.services.get(`${namespace}/web`);
  if (service === undefined || service.proxyName !== "") return;
  const { groups } = mergeSlices(slicesOf(snapshot, `${namespace}/web`));
  for (const [nodeName, view] of views) {
    const node: ChoosingNode = choosingNode(snapshot, nodeName);
    for (const port of service.ports) {
      for (const family of families) {
        if (service.clusterIPs?.[family].length === 0) continue;
        const group = portGroup(family, { name: port.name, protocol: port.protocol, port: 1 });
        yield { service, port, family, node, view, facets: groups.get(group) ?? [] };
      }
    }
  }
}

export function describeCoverage(coverage: Coverage): string {
  return [...coverage].map(([name, count]) => `${String(count).padStart(7)}  ${name}`).join("\n");
}
