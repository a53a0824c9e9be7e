// The parts of Kubernetes objects that scenarios use. Fields have the names and meanings of the API.

export interface ServicePortManifest {
  readonly name: string;
  readonly protocol: "TCP" | "UDP" | "SCTP";
  readonly port: number;
  readonly targetPort: number;
  readonly nodePort?: number | undefined;
}

export interface ServiceManifest {
  readonly apiVersion: "v1";
  readonly kind: "Service";
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>> | undefined;
    readonly creationTimestamp?: string | undefined;
  };
  readonly spec: {
    readonly type: "ClusterIP" | "NodePort" | "LoadBalancer";
    /** "None" for a headless Service. */
    readonly clusterIP: string;
    readonly clusterIPs: readonly string[];
    readonly ipFamilies: readonly ("IPv4" | "IPv6")[];
    readonly ipFamilyPolicy: "RequireDualStack";
    readonly ports: readonly ServicePortManifest[];
    readonly externalIPs?: readonly string[] | undefined;
    readonly loadBalancerSourceRanges?: readonly string[] | undefined;
    readonly internalTrafficPolicy: "Cluster" | "Local";
    readonly externalTrafficPolicy?: "Cluster" | "Local" | undefined;
    readonly healthCheckNodePort?: number | undefined;
    readonly sessionAffinity: "None" | "ClientIP";
    readonly sessionAffinityConfig?: { readonly clientIP: { readonly timeoutSeconds: number } } | undefined;
  };
  readonly status: {
    readonly loadBalancer: { readonly ingress?: readonly { readonly ip: string; readonly ipMode: "VIP" | "Proxy" }[] };
  };
}

interface Hints {
  readonly forZones?: readonly { readonly name: string }[] | undefined;
  readonly forNodes?: readonly { readonly name: string }[] | undefined;
}

export interface EndpointManifest {
  readonly addresses: readonly string[];
  readonly nodeName: string;
  readonly zone: string;
  readonly hints?: Hints | undefined;
  readonly conditions: { readonly ready: boolean; readonly serving: boolean; readonly terminating: boolean };
}

export interface EndpointSliceManifest {
  readonly apiVersion: "discovery.k8s.io/v1";
  readonly kind: "EndpointSlice";
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly labels: Readonly<Record<string, string>>;
  };
  readonly addressType: "IPv4" | "IPv6";
  readonly ports: readonly {
    readonly name: string;
    readonly port: number;
    readonly protocol: "TCP" | "UDP" | "SCTP";
  }[];
  readonly endpoints: readonly EndpointManifest[];
}

export interface NodeManifest {
  readonly apiVersion: "v1";
  readonly kind: "Node";
  readonly metadata: { readonly name: string; readonly labels: Readonly<Record<string, string>> };
  readonly spec: { readonly podCIDR: string; readonly podCIDRs: readonly string[] };
  readonly status: { readonly addresses: readonly { readonly type: "InternalIP"; readonly address: string }[] };
}

export type Manifest = ServiceManifest | EndpointSliceManifest | NodeManifest;

/** State of the cluster, except its Nodes, which are the same in all states. */
export interface State {
  readonly services: readonly ServiceManifest[];
  readonly slices: readonly EndpointSliceManifest[];
}
