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

interface PodOptions {
  readonly name: string;
  /** Value of the label `app`, which Services of `createService` select. */
  readonly app: string;
  readonly node: string;
  readonly ip: string;
}

/** Creates a Pod in the namespace default, with the status that a kubelet would report. */
export async function createPod(api: ApiClient, { name, app, node, ip }: PodOptions): Promise<void> {
  // The controller copies it to the slice's last-change-trigger-time. API times are whole seconds.
  const isTrue = { status: "True", lastTransitionTime: new Date().toISOString().replace(/\.\d+Z$/, "Z") };
  const ports = [{ name: "http", containerPort: 8080 }];
  await api.create("/api/v1/namespaces/default/pods", {
    ...{ apiVersion: "v1", kind: "Pod", metadata: { name, labels: { app } } },
    spec: { nodeName: node, containers: [{ name: "main", image: "none", ports }] },
  });
  const conditions = ["Ready", "ContainersReady"].map((type) => ({ type, ...isTrue }));
  const status = { phase: "Running", podIP: ip, podIPs: [{ ip }], conditions };
  await api.patch(`/api/v1/namespaces/default/pods/${name}/status`, { status });
}

export interface ServiceOptions {
  readonly name: string;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Additions to the spec. Default: TCP port 80 to "http" and the selector `app: <name>`. */
  readonly spec?: Readonly<Record<string, unknown>> | undefined;
}

/** Creates a Service in the namespace default that selects the Pods whose label `app` is its name. */
export function createService(api: ApiClient, { name, labels = {}, spec }: ServiceOptions): Promise<KubeObject> {
  return api.create("/api/v1/namespaces/default/services", {
    ...{ apiVersion: "v1", kind: "Service", metadata: { name, labels } },
    spec: { selector: { app: name }, ports: [{ port: 80, targetPort: "http" }], ...spec },
  });
}

interface SliceOptions {
  readonly name: string;
  readonly service: string;
  readonly addresses: readonly string[];
  /** In place of port 8080 and ready endpoints. */
  readonly more?: Readonly<Record<"ports" | "endpoints", unknown>> | undefined;
}

/** Creates an EndpointSlice that the controller does not manage. */
export function createSlice(api: ApiClient, { name, service, addresses, more }: SliceOptions): Promise<KubeObject> {
  const labels = { "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "kpng-test" };
  return api.create(slicesPath(), {
    ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", metadata: { name, labels } },
    addressType: "IPv4",
    ports: [{ name: "", port: 8080, protocol: "TCP" }],
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
    ...more,
  });
}

export function slicesPath(namespace = "default"): string {
  return `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;
}

/** Waits until the slices of a Service contain this many addresses. */
export async function untilSlicesHold(api: ApiClient, service: string, addressCount: number): Promise<void> {
  const selector = encodeURIComponent(`kubernetes.io/service-name=${service}`);
  await until(`the slices of ${service} hold ${addressCount} addresses`, async () => {
    const slices = await api.list(`${slicesPath()}?labelSelector=${selector}`);
    const endpoints = slices.flatMap((slice) => (Array.isArray(slice.endpoints) ? slice.endpoints : []));
    return endpoints.length === addressCount;
  });
}
