export type Protocol = "TCP" | "UDP";

/** Options of {@link oneService}. */
export interface OneServiceOptions {
  /** One port for each. Default TCP. */
  readonly protocols?: readonly Protocol[] | undefined;
  /** Addresses of the endpoints. Default 127.0.0.1. */
  readonly addresses?: readonly string[] | undefined;
  readonly annotations?: Readonly<Record<string, string>> | undefined;
}

/**
 * A cluster for `kpng file`: one Service, 10.96.0.1:80, whose endpoints listen at the port `target` of this machine.
 */
export function oneService(
  target: number,
  { protocols = ["TCP"], addresses = ["127.0.0.1"], annotations = {} }: OneServiceOptions = {},
): unknown {
  const ports = protocols.map((protocol) => ({ name: protocol.toLowerCase(), protocol }));
  return {
    apiVersion: "v1",
    kind: "List",
    items: [
      {
        apiVersion: "v1",
        kind: "Service",
        metadata: { name: "web", namespace: "default", annotations },
        spec: {
          clusterIP: "10.96.0.1",
          clusterIPs: ["10.96.0.1"],
          ports: ports.map((port) => ({ ...port, port: 80, targetPort: target })),
        },
      },
      {
        apiVersion: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        metadata: { name: "web-1", namespace: "default", labels: { "kubernetes.io/service-name": "web" } },
        addressType: "IPv4",
        ports: ports.map((port) => ({ ...port, port: target })),
        endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
      },
    ],
  };
}
