import type { ApiClient } from "../cluster/api-client.ts";
import { inParallel } from "./large-cluster.ts";

/** Services of equal size: IPv4, cluster IPs, all endpoints on other nodes. */
export interface IptablesShape {
  readonly services: number;
  readonly ports: number;
  readonly endpoints: number;
}

/** Path of the EndpointSlices. */
export const slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/** Fills an API server with a Node n1 and the Services of the shape, each with one slice. */
export async function fillWithServices(api: ApiClient, shape: IptablesShape): Promise<void> {
  await api.create("/api/v1/nodes", {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: "n1" },
    spec: { podCIDR: "10.200.0.0/24", podCIDRs: ["10.200.0.0/24"] },
  });
  // kube-proxy does not start before its Node has an address.
  const addresses = [{ type: "InternalIP", address: "192.0.2.1" }];
  await api.patch("/api/v1/nodes/n1/status", { status: { addresses } });
  await inParallel(shape.services, async (at) => {
    const ports = portNumbers(shape).map((port) => ({ name: `p${port}`, port, targetPort: 8_000 + port }));
    const metadata = { name: `service-${at}`, namespace: "default" };
    await api.create("/api/v1/namespaces/default/services", {
      apiVersion: "v1",
      kind: "Service",
      metadata,
      spec: { ports },
    });
    await api.create(slices, {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: {
        name: `service-${at}`,
        namespace: "default",
        labels: {
          "kubernetes.io/service-name": `service-${at}`,
          "endpointslice.kubernetes.io/managed-by": "kpng-bench",
        },
      },
      addressType: "IPv4",
      ports: portNumbers(shape).map((port) => ({ name: `p${port}`, port: 8_000 + port, protocol: "TCP" })),
      endpoints: makeEndpoints(shape, at, shape.endpoints),
    });
  });
}

/** Sets the number of endpoints of a Service, which changes one object. */
export async function setEndpoints(api: ApiClient, shape: IptablesShape, at: number, count: number): Promise<void> {
  await api.patch(`${slices}/service-${at}`, { endpoints: makeEndpoints(shape, at, count) });
}

/** Ports of each Service. */
export function portNumbers({ ports }: IptablesShape): readonly number[] {
  return Array.from({ length: ports }, (_, index) => 80 + index);
}

function makeEndpoints({ endpoints }: IptablesShape, at: number, count: number) {
  return Array.from({ length: count }, (_, index) => {
    const number = at * endpoints + index;
    return {
      addresses: [`10.${number >> 16}.${(number >> 8) & 255}.${number & 255}`],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: "n2",
    };
  });
}
