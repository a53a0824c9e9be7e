/** Namespace and names of the Services that change during a soak. */
export const changedNamespace = "default";
export const changedLabel = "kpng.test/changed";
export const servicePort = 80;
export const agentPort = 8080;

export function changedName(number: number): string {
  return `changed-${number}`;
}

/** A pod that answers, as an endpoint of a slice. */
export interface Endpoint {
  readonly address: string;
  readonly nodeName: string;
  readonly name: string;
}

/** A request to the API server. `collection` ends in a plural such as `services`. */
export interface Change {
  readonly method: "POST" | "PATCH" | "DELETE";
  readonly path: string;
  readonly body?: object | undefined;
}

const services = `/api/v1/namespaces/${changedNamespace}/services`;
const slices = `/apis/discovery.k8s.io/v1/namespaces/${changedNamespace}/endpointslices`;

/** Returns the requests that create the Services and their slices. */
export function createAll(count: number, endpoints: readonly Endpoint[]): readonly Change[] {
  return Array.from({ length: count }, (_, index) => changedName(index)).flatMap((name) => [
    createService(name),
    {
      method: "POST",
      path: slices,
      body: {
        apiVersion: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        metadata: { name, labels: { "kubernetes.io/service-name": name, [changedLabel]: "yes" } },
        addressType: endpoints[0]?.address.includes(":") ? "IPv6" : "IPv4",
        ports: [{ name: "", port: agentPort, protocol: "TCP" }],
        endpoints: endpoints.map(makeEndpoint),
      },
    },
  ]);
}

/** The Services that a soak changes, by name, and which of them exist at the moment. */
export type ExistingServices = ReadonlyMap<string, boolean>;

/** Returns whether a Service exists after the API server accepted `change`; undefined if it changed something else. */
export function existsAfter({
  method,
  path,
  body,
}: Change): { readonly name: string; readonly exists: boolean } | undefined {
  if (method === "PATCH" || !path.startsWith(services)) return undefined;
  const { metadata } = (body ?? {}) as { readonly metadata?: { readonly name: string } };
  return { name: metadata?.name ?? path.slice(services.length + 1), exists: method === "POST" };
}

/**
 * Returns a random change of one of the Services: mostly of its endpoints, otherwise of its traffic policy, or it
 * deletes the Service, or creates it again. The slice of a deleted Service stays, and changes, too.
 */
export function randomChange(
  below: (limit: number) => number,
  existing: ExistingServices,
  endpoints: readonly Endpoint[],
): Change {
  const [name, exists] = [...existing][below(existing.size)] as [string, boolean];
  const choice = below(20);
  if (!exists && choice < 10) return createService(name);
  if (exists && choice < 1) return { method: "DELETE", path: `${services}/${name}` };
  if (exists && choice < 2) {
    const internalTrafficPolicy = below(2) === 0 ? "Local" : "Cluster";
    return { method: "PATCH", path: `${services}/${name}`, body: { spec: { internalTrafficPolicy } } };
  }
  const chosen = endpoints.filter(() => below(2) === 0).map(makeEndpoint);
  return { method: "PATCH", path: `${slices}/${name}`, body: { endpoints: chosen } };
}

function createService(name: string): Change {
  const body = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name, labels: { [changedLabel]: "yes" } },
    spec: { ports: [{ port: servicePort, targetPort: agentPort }] },
  };
  return { method: "POST", path: services, body };
}

function makeEndpoint({ address, nodeName, name }: Endpoint): object {
  return { addresses: [address], nodeName, hostname: name, conditions: { ready: true } };
}
