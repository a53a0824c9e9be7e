import type { ApiClient, KubeObject } from "./api-client.ts";
import { until } from "./until.ts";

/** Creates a ready Node with a zone and an address. */
export async function createNode(api: ApiClient, name: string, zone = "zone-a"): Promise<void> {
  const labels = { "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone };
  await api.create("/api/v1/nodes", { apiVersion: "v1", kind: "Node", metadata: { name, labels } });
  await api.patch(`/api/v1/nodes/${name}/status`, {
    status: {
      addresses: [{ type: "InternalIP", address: "192.0.2.1" }],
      conditions: [{ type: "Ready", status: "True", reason: "KubeletReady", message: "" }],
    },
  });
}

export interface PodOptions {
  readonly name: string;
  readonly namespace?: string | undefined;
  /** Value of the label `app`, which Services of `createService` select. */
  readonly app: string;
  readonly node: string;
  readonly ip: string;
  /** Default true. */
  readonly isReady?: boolean | undefined;
}

/** Creates a Pod with the status that a kubelet would report. */
export async function createPod(api: ApiClient, options: PodOptions): Promise<void> {
  const { name, namespace = "default", app, node, ip, isReady = true } = options;
  const status = isReady ? "True" : "False";
  // The controller copies it to the slice's last-change-trigger-time. API times are whole seconds.
  const lastTransitionTime = new Date().toISOString().replace(/\.\d+Z$/, "Z");
  await api.create(`/api/v1/namespaces/${namespace}/pods`, {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace, labels: { app } },
    spec: {
      nodeName: node,
      containers: [{ name: "main", image: "none", ports: [{ name: "http", containerPort: 8080 }] }],
    },
  });
  await api.patch(`/api/v1/namespaces/${namespace}/pods/${name}/status`, {
    status: {
      phase: "Running",
      podIP: ip,
      podIPs: [{ ip }],
      conditions: [
        { type: "Ready", status, lastTransitionTime },
        { type: "ContainersReady", status, lastTransitionTime },
      ],
    },
  });
}

export interface ServiceOptions {
  readonly name: string;
  readonly namespace?: string | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Additions to the spec. Default: TCP port 80 to "http" and the selector `app: <name>`. */
  readonly spec?: Readonly<Record<string, unknown>> | undefined;
}

/** Creates a Service that selects the Pods whose label `app` is its name. */
export function createService(api: ApiClient, options: ServiceOptions): Promise<KubeObject> {
  const { name, namespace = "default", labels = {}, spec } = options;
  return api.create(`/api/v1/namespaces/${namespace}/services`, {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name, namespace, labels },
    spec: { selector: { app: name }, ports: [{ port: 80, targetPort: "http" }], ...spec },
  });
}

export interface SliceOptions {
  readonly name: string;
  readonly namespace?: string | undefined;
  readonly service: string;
  readonly addresses: readonly string[];
}

/** Creates an EndpointSlice that the controller does not manage. */
export function createSlice(api: ApiClient, options: SliceOptions): Promise<KubeObject> {
  const { name, namespace = "default", service, addresses } = options;
  return api.create(`${slicesPath(namespace)}`, {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name,
      namespace,
      labels: { "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "kpng-test" },
    },
    addressType: "IPv4",
    ports: [{ name: "", port: 8080, protocol: "TCP" }],
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
  });
}

export function slicesPath(namespace = "default"): string {
  return `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;
}

/** Waits until the slices of a Service contain this many addresses, and returns the slices. */
export function untilSlicesHold(
  api: ApiClient,
  service: string,
  addressCount: number,
  namespace = "default",
): Promise<readonly KubeObject[]> {
  const selector = encodeURIComponent(`kubernetes.io/service-name=${service}`);
  return until(`the slices of ${namespace}/${service} hold ${addressCount} addresses`, async () => {
    const slices = await api.list(`${slicesPath(namespace)}?labelSelector=${selector}`);
    const endpoints = slices.flatMap((slice) => (Array.isArray(slice.endpoints) ? slice.endpoints : []));
    return endpoints.length === addressCount ? slices : undefined;
  });
}
