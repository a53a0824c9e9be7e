import type { ApiClient } from "../cluster/api-client.ts";

export interface LargeClusterOptions {
  readonly services: number;
  readonly slices: number;
  readonly endpointsPerSlice: number;
  readonly nodes: number;
}

/** Number of objects created in parallel; a larger number does not make the API server faster. */
const concurrency = 32;

/** Creates Services, their slices, and Nodes in three zones. No controller creates slices. */
export async function fillCluster(api: ApiClient, options: LargeClusterOptions): Promise<void> {
  await inParallel(options.nodes, async (index) => {
    const labels = { "topology.kubernetes.io/zone": `zone-${index % 3}` };
    await api.create("/api/v1/nodes", { apiVersion: "v1", kind: "Node", metadata: { name: `node-${index}`, labels } });
  });
  await inParallel(options.services, async (index) => {
    const spec = { ports: [{ name: "http", port: 80, targetPort: 8080 }] };
    const metadata = { name: `service-${index}`, namespace: "default" };
    await api.create("/api/v1/namespaces/default/services", { apiVersion: "v1", kind: "Service", metadata, spec });
  });
  await inParallel(options.slices, async (index) => {
    await api.create(`/apis/discovery.k8s.io/v1/namespaces/default/endpointslices`, makeSlice(index, options));
  });
}

function makeSlice(index: number, { endpointsPerSlice, nodes, services }: LargeClusterOptions) {
  const labels = {
    "kubernetes.io/service-name": `service-${index % services}`,
    "endpointslice.kubernetes.io/managed-by": "kpng-scale-test",
  };
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name: `slice-${index}`, namespace: "default", labels },
    addressType: "IPv4",
    ports: [{ name: "http", port: 8080, protocol: "TCP" }],
    endpoints: Array.from({ length: endpointsPerSlice }, (_, pod) =>
      makeEndpoint(index * endpointsPerSlice + pod, nodes),
    ),
  };
}

export function makeEndpoint(number: number, nodes: number, ready = true) {
  return {
    addresses: [`10.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}`],
    conditions: { ready, serving: ready, terminating: false },
    nodeName: `node-${number % nodes}`,
    zone: `zone-${(number % nodes) % 3}`,
    targetRef: { kind: "Pod", namespace: "default", name: `pod-${number}` },
  };
}

export async function inParallel(count: number, act: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) await act(next++);
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
}
