interface ServiceParts {
  /** In namespace "default". Default "web". */
  readonly name?: string;
  /** Default 10.96.0.1. */
  readonly clusterIP?: string;
  /** IPv4 address of the one endpoint, which is ready. Default 127.0.0.1. */
  readonly endpoint?: string;
  /** The port of the endpoint. Default 8080. */
  readonly target?: number;
  /** Default TCP. */
  readonly protocols?: readonly ("TCP" | "UDP")[];
}

/**
 * Returns Services and their EndpointSlices as a Kubernetes List, for tests that start programs with `kpng file`. Each
 * Service has a port 80 for each of its protocols, with the name of the protocol.
 */
export function serviceList(...services: readonly ServiceParts[]): object {
  return { apiVersion: "v1", kind: "List", items: services.flatMap(manifestsOf) };
}

function manifestsOf(parts: ServiceParts): readonly object[] {
  const { name = "web", clusterIP = "10.96.0.1", endpoint = "127.0.0.1", target = 8080, protocols = ["TCP"] } = parts;
  const ports = protocols.map((protocol) => ({ name: protocol.toLowerCase(), protocol }));
  return [
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name, namespace: "default" },
      spec: {
        clusterIP,
        clusterIPs: [clusterIP],
        ports: ports.map((port) => ({ ...port, port: 80, targetPort: target })),
      },
    },
    {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { name: `${name}-1`, namespace: "default", labels: { "kubernetes.io/service-name": name } },
      addressType: "IPv4",
      ports: ports.map((port) => ({ ...port, port: target })),
      endpoints: [{ addresses: [endpoint], conditions: { ready: true } }],
    },
  ];
}
