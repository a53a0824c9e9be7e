/** A Service with one endpoint, for tests that start the program. */
interface ServiceManifests {
  /** In namespace "a". Default "web". */
  readonly name?: string | undefined;
  readonly clusterIP: string;
  /** Name of the port, in the Service and in the slice. Default "". */
  readonly portName?: string | undefined;
  /** Default: none. */
  readonly nodePort?: number | undefined;
  /** IPv4 address of the one endpoint, which is ready. */
  readonly endpoint: string;
}

/**
 * Returns the manifests of a Service with TCP port 80 and of its EndpointSlice with port 8080. Kernel tests of this
 * package and of `test/` write them into the input folder of a watcher.
 */
export function serviceManifests(service: ServiceManifests): readonly unknown[] {
  const { name = "web", clusterIP, portName, nodePort, endpoint } = service;
  const named = portName === undefined ? {} : { name: portName };
  const exposed = nodePort === undefined ? {} : { nodePort };
  return [
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { namespace: "a", name },
      spec: {
        type: nodePort === undefined ? "ClusterIP" : "NodePort",
        clusterIP,
        clusterIPs: [clusterIP],
        ports: [{ ...named, ...exposed, port: 80, protocol: "TCP" }],
      },
    },
    {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { namespace: "a", name: `${name}-1`, labels: { "kubernetes.io/service-name": name } },
      addressType: "IPv4",
      ports: [{ name: portName ?? "", port: 8080, protocol: "TCP" }],
      endpoints: [{ addresses: [endpoint], conditions: { ready: true } }],
    },
  ];
}
