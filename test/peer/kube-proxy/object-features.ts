import type { KubeObject } from "../../cluster/api-client.ts";
import type { RawEndpoint } from "./generate-pods.ts";
import type { GeneratedState } from "./generate-state.ts";
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
