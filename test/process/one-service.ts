type Protocol = "TCP" | "UDP";

/**
 * A cluster for `kpng file`: one Service, 10.96.0.1:80, whose endpoint listens at the port `target` of this machine.
 * It has a port for each protocol.
 */
export function oneService(target: number, protocols: readonly Protocol[] = ["TCP"]): unknown {
  const ports = protocols.map((protocol) => ({ name: protocol.toLowerCase(), protocol }));
  const service = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "web", namespace: "default" },
    spec: {
      clusterIP: "10.96.0.1",
      clusterIPs: ["10.96.0.1"],
      ports: ports.map((port) => ({ ...port, port: 80, targetPort: target })),
    },
  };
  const slice = {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name: "web-1", namespace: "default", labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: ports.map((port) => ({ ...port, port: target })),
    endpoints: [{ addresses: ["127.0.0.1"], conditions: { ready: true } }],
  };
  return { apiVersion: "v1", kind: "List", items: [service, slice] };
}
