import type { AddressSet } from "@kpng/model/address.ts";
import { compareText } from "@kpng/model/collections.ts";
import type { NodeView, ServiceView, ViewEndpoint } from "@kpng/model/node-view.ts";
import type { Protocol, Service, ServicePort, UnknownPort } from "@kpng/model/service.ts";

/** Values of KPNG's enum. */
const protocolNumbers: Readonly<Record<Protocol, number>> = { TCP: 1, UDP: 2, SCTP: 3 };

/**
 * Returns the lines that `kpng-json` prints and `kpng-callout` passes to its program, one per Service including its
 * line end, sorted by namespace and then by name as in KPNG.
 */
export function* formatViewLines(view: NodeView): Generator<string, void, void> {
  // Sorted by key alone, "a-b/x" would come before "a/x", because a dash sorts before a slash.
  const services = [...view.services.values()].sort(
    ({ service: a }, { service: b }) => compareText(a.namespace, b.namespace) || compareText(a.name, b.name),
  );
  for (const service of services) yield `${formatServiceLine(service)}\n`;
}

/**
 * Returns a Service with its endpoints as one line of JSON without line end, as Go's encoding/json writes KPNG's
 * structs: without zero values, with `<`, `>` and `&` escaped, and with map keys sorted (except that numbers come
 * first).
 *
 * *Source:* kpng `examples/pipe-exec`, `fullstate.ServiceEndpoints`.
 */
export function formatServiceLine({ service, endpoints }: ServiceView): string {
  // In KPNG, every endpoint has a scope, so it would misread endpoints that only kernel backends need as usable.
  const usable = endpoints.filter(({ scopes }) => scopes.internal || scopes.external);
  const fields = { Service: serviceFields(service), Endpoints: given(usable.map(endpointFields)) ?? null };
  // Go also escapes these characters, which occur only in strings.
  return JSON.stringify(fields).replaceAll(
    /[<>&\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Returns undefined, which JSON omits, for the zero value of a Go type. */
function given<Value extends string | number | boolean | readonly unknown[]>(value: Value): Value | undefined {
  const isZero = Array.isArray(value) ? value.length === 0 : !value;
  return isZero ? undefined : value;
}

function serviceFields(service: Service) {
  const { clientIPAffinitySeconds: affinity } = service;
  return {
    Namespace: given(service.namespace),
    Name: given(service.name),
    Type: given(service.type),
    Labels: sortedMap(service.labels),
    Annotations: sortedMap(service.annotations),
    IPs: {
      ClusterIPs: addresses(service.clusterIPs),
      ExternalIPs: addresses(service.externalIPs),
      LoadBalancerIPs: addresses(service.loadBalancerIPs),
      Headless: given(service.isHeadless),
    },
    IPFilters: given(
      service.ipFilters.map(({ targetIPs, sourceRanges }) => ({
        TargetIPs: addresses(targetIPs),
        SourceRanges: given(sourceRanges),
      })),
    ),
    MapIP: given(service.mapIP),
    Ports: given([...service.ports, ...(service.unknownPorts ?? [])].map(portFields)),
    ExternalTrafficToLocal: given(service.externalTrafficPolicy === "Local"),
    // A oneof is a Go interface without omitempty, so its zero value appears as null.
    SessionAffinity: affinity === undefined ? null : { ClientIP: { TimeoutSeconds: given(affinity) } },
    InternalTrafficToLocal: given(service.internalTrafficPolicy === "Local"),
    HealthCheckNodePort: given(service.healthCheckNodePort),
  };
}

function portFields({ name, protocol, port, nodePort, targetPort }: ServicePort | UnknownPort) {
  return {
    Name: given(name),
    Protocol: given(typeof protocol === "number" ? protocol : protocolNumbers[protocol]),
    Port: given(port),
    NodePort: given(nodePort),
    [typeof targetPort === "number" ? "TargetPort" : "TargetPortName"]: given(targetPort ?? 0),
  };
}

function endpointFields({ hostname, addresses: ips, isOnNode, ports, scopes }: ViewEndpoint) {
  return {
    Hostname: given(hostname),
    IPs: addresses(ips),
    Local: given(isOnNode),
    PortOverrides: given(ports.map(({ name, port }) => ({ Name: given(name), Port: given(port) }))),
    Scopes: { Internal: given(scopes.internal), External: given(scopes.external) },
  };
}

/** Undefined stays absent, and an empty set becomes an empty object. */
function addresses(set: AddressSet | undefined) {
  return set && { V4: given(set.v4.toSorted(compareText)), V6: given(set.v6.toSorted(compareText)) };
}

function sortedMap(map: Readonly<Record<string, string>>): Readonly<Record<string, string>> | undefined {
  const entries = Object.entries(map).sort(([a], [b]) => compareText(a, b));
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}
