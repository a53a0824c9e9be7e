import type { AddressSet } from "@kpng/model/address.ts";
import { compareText } from "@kpng/model/collections.ts";
import type { NodeView, ServiceView, ViewEndpoint } from "@kpng/model/node-view.ts";
import type { IPFilter, Protocol, Service, ServicePort, UnknownPort } from "@kpng/model/service.ts";

/** Numbers of KPNG's enum, which the JSON contains. */
const protocolNumbers: Readonly<Record<Protocol, number>> = { TCP: 1, UDP: 2, SCTP: 3 };

/** A field of a JSON object: its name, and its value as JSON text, or undefined to leave it out. */
type Field = readonly [name: string, json: string | undefined];

/**
 * Returns the lines that `kpng-json` prints and `kpng-callout` passes to its program, one per Service with its line
 * end, sorted by namespace and then name as in KPNG.
 */
export function* formatViewLines(view: NodeView): Generator<string, void, void> {
  // By key alone "a-b/x" would come before "a/x", because a dash is less than a slash.
  const services = [...view.services.values()].sort(
    ({ service: a }, { service: b }) => compareText(a.namespace, b.namespace) || compareText(a.name, b.name),
  );
  for (const service of services) yield `${formatServiceLine(service)}\n`;
}

/**
 * Returns a Service with its endpoints as one line of JSON without line end, byte for byte as Go's encoding/json writes
 * KPNG's structs: zero values left out, `<`, `>`, `&` escaped, the keys of maps sorted.
 *
 * *Source:* kpng `examples/pipe-exec`, `fullstate.ServiceEndpoints`.
 */
export function formatServiceLine({ service, endpoints }: ServiceView): string {
  // KPNG has no endpoints without a scope; the ones that only kernel backends need would be misread as usable.
  const usable = endpoints.filter(({ scopes }) => scopes.internal || scopes.external);
  return object([
    ["Service", formatService(service)],
    ["Endpoints", usable.length === 0 ? "null" : array(usable.map(formatEndpoint))],
  ]);
}

function formatService(service: Service): string {
  const { clientIPAffinitySeconds: affinity } = service;
  return object([
    ["Namespace", text(service.namespace)],
    ["Name", text(service.name)],
    ["Type", text(service.type)],
    ["Labels", textMap(service.labels)],
    ["Annotations", textMap(service.annotations)],
    [
      "IPs",
      object([
        ["ClusterIPs", addresses(service.clusterIPs)],
        ["ExternalIPs", addresses(service.externalIPs)],
        ["LoadBalancerIPs", addresses(service.loadBalancerIPs)],
        ["Headless", flag(service.isHeadless)],
      ]),
    ],
    ["IPFilters", list(service.ipFilters.map(formatFilter))],
    ["MapIP", flag(service.mapIP)],
    ["Ports", list([...service.ports, ...(service.unknownPorts ?? [])].map(formatPort))],
    ["ExternalTrafficToLocal", flag(service.externalTrafficPolicy === "Local")],
    // A oneof is a Go interface, which has no omitempty.
    [
      "SessionAffinity",
      affinity === undefined ? "null" : object([["ClientIP", object([["TimeoutSeconds", number(affinity)]])]]),
    ],
    ["InternalTrafficToLocal", flag(service.internalTrafficPolicy === "Local")],
    ["HealthCheckNodePort", number(service.healthCheckNodePort)],
  ]);
}

function formatFilter(filter: IPFilter): string {
  return object([
    ["TargetIPs", addresses(filter.targetIPs)],
    ["SourceRanges", list(filter.sourceRanges.map(quote))],
  ]);
}

function formatPort(port: ServicePort | UnknownPort): string {
  return object([
    ["Name", text(port.name)],
    ["Protocol", number(typeof port.protocol === "number" ? port.protocol : protocolNumbers[port.protocol])],
    ["Port", number(port.port)],
    ["NodePort", number(port.nodePort)],
    ["TargetPort", typeof port.targetPort === "number" ? number(port.targetPort) : undefined],
    ["TargetPortName", typeof port.targetPort === "string" ? text(port.targetPort) : undefined],
  ]);
}

function formatEndpoint(endpoint: ViewEndpoint): string {
  return object([
    ["Hostname", text(endpoint.hostname)],
    ["IPs", addresses(endpoint.addresses)],
    ["Local", flag(endpoint.isOnNode)],
    [
      "PortOverrides",
      list(
        endpoint.ports.map(({ name, port }) =>
          object([
            ["Name", text(name)],
            ["Port", number(port)],
          ]),
        ),
      ),
    ],
    [
      "Scopes",
      object([
        ["Internal", flag(endpoint.scopes.internal)],
        ["External", flag(endpoint.scopes.external)],
      ]),
    ],
  ]);
}

/** Formats a set of addresses: undefined stays absent, an empty set is an empty object. */
function addresses(set: AddressSet | undefined): string | undefined {
  if (set === undefined) return undefined;
  return object([
    ["V4", list([...set.v4].sort(compareText).map(quote))],
    ["V6", list([...set.v6].sort(compareText).map(quote))],
  ]);
}

function textMap(map: Readonly<Record<string, string>>): string | undefined {
  const entries = Object.entries(map).sort(([a], [b]) => compareText(a, b));
  return entries.length === 0 ? undefined : object(entries.map(([key, value]) => [key, quote(value)]));
}

function object(fields: readonly Field[]): string {
  const present = fields.filter(([, json]) => json !== undefined);
  return `{${present.map(([name, json]) => `${quote(name)}:${json}`).join(",")}}`;
}

function array(items: readonly string[]): string {
  return `[${items.join(",")}]`;
}

function list(items: readonly string[]): string | undefined {
  return items.length === 0 ? undefined : array(items);
}

function text(value: string): string | undefined {
  return value === "" ? undefined : quote(value);
}

function number(value: number): string | undefined {
  return value === 0 ? undefined : String(value);
}

function flag(value: boolean): string | undefined {
  return value ? "true" : undefined;
}

/** Returns a JSON string. Go also escapes `<`, `>`, `&` and two line separators, which JSON.stringify does not. */
function quote(value: string): string {
  return JSON.stringify(value).replaceAll(
    /[<>&\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
