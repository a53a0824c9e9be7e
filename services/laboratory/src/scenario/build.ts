import {
  type AddressPair,
  type Family,
  families,
  type HostName,
  hosts,
  nodeOf,
  type Protocol,
  podCIDRs,
} from "./places.ts";

/** Port of a Service; by default for both TCP and UDP. */
interface PortOptions {
  readonly port: number;
  /** Port of the pods: 8080 (default) or 8443. */
  readonly targetPort?: 8080 | 8443 | undefined;
  readonly nodePort?: number | undefined;
  readonly protocols?: readonly Protocol[] | undefined;
}

/** Properties of a Service. Default: type ClusterIP with port 80 to 8080, TCP and UDP. */
export interface ServiceOptions {
  /** Default: NodePort if a port has a node port, LoadBalancer if there is a load-balancer IP, else ClusterIP. */
  readonly type?: "ClusterIP" | "NodePort" | "LoadBalancer" | undefined;
  /** Number of its cluster IP: 10.96.0.<number> and fd00:10:96::<number>. Default 11. */
  readonly number?: number | undefined;
  readonly ports?: readonly PortOptions[] | undefined;
  /** The Service takes its addresses as a whole. Default false. */
  readonly mapIP?: boolean | undefined;
  /** Default false. A headless Service has no cluster IP, takes its addresses as a whole, and may have no ports. */
  readonly isHeadless?: boolean | undefined;
  readonly externalIPs?: readonly AddressPair[] | undefined;
  readonly loadBalancerIPs?: readonly AddressPair[] | undefined;
  readonly ipMode?: "VIP" | "Proxy" | undefined;
  readonly sourceRanges?: readonly AddressPair[] | undefined;
  readonly internal?: "Cluster" | "Local" | undefined;
  readonly external?: "Cluster" | "Local" | undefined;
  readonly affinitySeconds?: number | undefined;
  readonly healthCheckNodePort?: number | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Time of its creation. *Shape:* `2024-01-01T00:00:00Z`. Default: unknown. */
  readonly created?: string | undefined;
}

/** Endpoint on a host, by the name of the host: ready, or in the condition given. */
export type EndpointOption =
  | HostName
  | {
      readonly host: HostName;
      readonly is: keyof typeof conditions;
      readonly forZones?: readonly string[] | undefined;
      readonly forNodes?: readonly string[] | undefined;
    };

/** Terminating and still serving. */
export const draining = (host: HostName): EndpointOption => ({ host, is: "draining" });
/** Neither ready nor terminating. */
export const unready = (host: HostName): EndpointOption => ({ host, is: "unready" });
/** Terminating and no longer serving. */
export const gone = (host: HostName): EndpointOption => ({ host, is: "gone" });
/** Ready endpoint with a hint for the zone "zone-<node>". */
export const forZoneOf = (node: "n1" | "n2", host: HostName): EndpointOption => ({
  host,
  is: "ready",
  forZones: [`zone-${node}`],
});
/** Ready endpoint with a hint for one node. */
export const forNode = (node: "n1" | "n2", host: HostName): EndpointOption => ({ host, is: "ready", forNodes: [node] });

const conditions = {
  ready: { ready: true, serving: true, terminating: false },
  unready: { ready: false, serving: false, terminating: false },
  draining: { ready: false, serving: true, terminating: true },
  gone: { ready: false, serving: false, terminating: true },
} as const;

/** Public addresses for external and load-balancer IPs: 198.51.100.<number> and 2001:db8:100::<number>. */
export function publicAddress(number: number): AddressPair {
  return { v4: `198.51.100.${number}`, v6: `2001:db8:100::${number}` };
}

/** State with one Service, named "web", and its endpoints. */
export function web(options: ServiceOptions, endpoints: readonly EndpointOption[]): State {
  return named("web", options, endpoints);
}

/** State with one Service and its endpoints. */
export function named(name: string, options: ServiceOptions, endpoints: readonly EndpointOption[]): State {
  const service = makeService(name, options);
  return { services: [service], slices: families.map((family) => makeSlice(service, family, endpoints)) };
}

/** Merges several states into one. */
export function together(...states: readonly State[]): State {
  return {
    services: states.flatMap(({ services }) => services),
    slices: states.flatMap(({ slices }) => slices),
  };
}

/** State without Services. */
export const nothing: State = { services: [], slices: [] };

/** Returns the manifest of a Service. Its readers take a field that is undefined for absent. */
function makeService(name: string, options: ServiceOptions) {
  const { number = 11, ports = [{ port: 80 }], loadBalancerIPs = [], ipMode = "VIP", affinitySeconds } = options;
  const hasNodePort = ports.some(({ nodePort }) => nodePort !== undefined);
  const type = options.type ?? (loadBalancerIPs.length > 0 ? "LoadBalancer" : hasNodePort ? "NodePort" : "ClusterIP");
  const isExternal = type !== "ClusterIP" || options.externalIPs !== undefined;
  const isHeadless = options.isHeadless === true;
  const clusterIPs = isHeadless ? ["None"] : [`10.96.0.${number}`, `fd00:10:96::${number}`];
  const labels: Readonly<Record<string, string>> = { ...options.labels, ...(isHeadless ? wholeAddresses : {}) };
  const annotations: Readonly<Record<string, string>> | undefined =
    options.mapIP === true && !isHeadless ? wholeAddresses : undefined;
  const ingress = bothFamilies(loadBalancerIPs).map((ip) => ({ ip, ipMode }));
  return {
    apiVersion: "v1",
    kind: "Service" as const,
    metadata: { name, namespace: "default", labels, annotations, creationTimestamp: options.created },
    spec: {
      type,
      clusterIP: clusterIPs[0] ?? "",
      clusterIPs,
      ipFamilies: ["IPv4", "IPv6"],
      ipFamilyPolicy: "RequireDualStack",
      ports: ports.flatMap(makePorts),
      internalTrafficPolicy: options.internal ?? "Cluster",
      externalTrafficPolicy: isExternal ? (options.external ?? "Cluster") : undefined,
      externalIPs: options.externalIPs && bothFamilies(options.externalIPs),
      loadBalancerSourceRanges: options.sourceRanges && bothFamilies(options.sourceRanges),
      healthCheckNodePort: options.healthCheckNodePort,
      sessionAffinity: affinitySeconds === undefined ? ("None" as const) : ("ClientIP" as const),
      sessionAffinityConfig:
        affinitySeconds === undefined ? undefined : { clientIP: { timeoutSeconds: affinitySeconds } },
    },
    status: { loadBalancer: { ingress: ingress.length === 0 ? undefined : ingress } },
  };
}

/** Annotation of a Service that takes its addresses as a whole; a label of a headless one. */
const wholeAddresses = { "kpng.dev/map-ip": "true" } as const;

/** Returns true if a Service takes its addresses as a whole. */
export function hasWholeAddresses({ metadata: { annotations, labels } }: ServiceManifest): boolean {
  return Object.keys(wholeAddresses).some((name) => (annotations?.[name] ?? labels[name]) === "true");
}

const protocolNames = { tcp: "TCP", udp: "UDP", sctp: "SCTP" } as const;

function makePorts({ port, targetPort = 8080, nodePort, protocols = ["tcp", "udp"] }: PortOptions) {
  return protocols.map((protocol) => {
    return { name: `p${port}-${protocol}`, protocol: protocolNames[protocol], port, targetPort, nodePort };
  });
}

function makeSlice(service: ServiceManifest, family: Family, endpoints: readonly EndpointOption[]) {
  const { name, namespace, labels } = service.metadata;
  const isHeadless = service.spec.clusterIP === "None";
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice" as const,
    metadata: {
      name: `${name}-${family}`,
      namespace,
      labels: {
        ...{ "kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "kpng-test" },
        // As the EndpointSlice controller does.
        ...(isHeadless ? { "service.kubernetes.io/headless": "", ...labels } : {}),
      },
    },
    addressType: family === "v4" ? ("IPv4" as const) : ("IPv6" as const),
    ports: service.spec.ports.map(({ name: portName, targetPort, protocol }) => ({
      name: portName,
      port: targetPort,
      protocol,
    })),
    endpoints: endpoints.map((endpoint) => makeEndpoint(endpoint, family)),
  };
}

function makeEndpoint(option: EndpointOption, family: Family) {
  const { host, is, forZones, forNodes } =
    typeof option === "string"
      ? { host: option, is: "ready" as const, forZones: undefined, forNodes: undefined }
      : option;
  const named = (names: readonly string[] | undefined) => names?.map((name) => ({ name }));
  const hasHints = forZones !== undefined || forNodes !== undefined;
  return {
    addresses: [hosts[host][family]],
    nodeName: nodeOf[host],
    zone: `zone-${nodeOf[host]}`,
    conditions: conditions[is],
    hints: hasHints ? { forZones: named(forZones), forNodes: named(forNodes) } : undefined,
  };
}

function bothFamilies(pairs: readonly AddressPair[]): readonly string[] {
  return pairs.flatMap(({ v4, v6 }) => [v4, v6]);
}

/** The Nodes of every state. */
export const nodes = (["n1", "n2"] as const).map((name) => ({
  apiVersion: "v1",
  kind: "Node" as const,
  metadata: { name, labels: { "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": `zone-${name}` } },
  spec: { podCIDR: podCIDRs[name].v4, podCIDRs: [podCIDRs[name].v4, podCIDRs[name].v6] },
  status: { addresses: families.map((family) => ({ type: "InternalIP", address: hosts[name][family] })) },
}));

/** The parts of Kubernetes objects that scenarios use. */
export type ServiceManifest = Readonly<ReturnType<typeof makeService>>;
export type EndpointSliceManifest = Readonly<ReturnType<typeof makeSlice>>;
export type EndpointManifest = EndpointSliceManifest["endpoints"][number];
export type Manifest = ServiceManifest | EndpointSliceManifest | (typeof nodes)[number];

/** State of the cluster, except its Nodes, which are the same in all states. */
export interface State {
  readonly services: readonly ServiceManifest[];
  readonly slices: readonly EndpointSliceManifest[];
}
