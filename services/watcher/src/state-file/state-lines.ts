import type { AddressSet } from "@kpng/model/address.ts";
import type { Endpoint, EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Protocol, Service } from "@kpng/model/service.ts";
import { listLines, mapLines, noLines, scalar } from "./yaml-text.ts";

/**
 * Returns the lines of a Node in a state file, without indentation. Pure.
 *
 * A state file holds a cluster state as KPNG's YAML: `kpng SOURCE to-file` writes it, `kpng file` reads it. KPNG
 * rejects unknown keys, so keys that only we have are omitted where the value is their default.
 *
 * `formatState` calls the functions of this file. Separate from it: it orders the objects and computes hashes.
 */
export function formatNode(node: Node): string[] {
  return [
    `name: ${scalar(node.name)}`,
    "topology:",
    `  node: ${scalar(node.name)}`,
    `  zone: ${scalar(node.zone)}`,
    ...mapLines("", "labels", node.labels),
    ...mapLines("", "annotations", node.annotations),
    ...(node.addresses.length > 0 ? scalars("", "addresses", node.addresses) : noLines),
    ...(node.podCIDRs.length > 0 ? scalars("", "podcidrs", node.podCIDRs) : noLines),
    ...(node.isEligible ? noLines : ["iseligible: false"]),
  ];
}

/**
 * Returns the lines of a Service in a state file, without indentation; with `hasAge`, its creation and UID. Pure.
 */
export function formatService(service: Service, hasAge: boolean): string[] {
  return [
    `namespace: ${scalar(service.namespace)}`,
    `name: ${scalar(service.name)}`,
    `type: ${scalar(service.type)}`,
    ...mapLines("", "labels", service.labels),
    ...mapLines("", "annotations", service.annotations),
    "ips:",
    ...addresses("  ", "clusterips", service.clusterIPs),
    ...addresses("  ", "externalips", service.externalIPs),
    ...addresses("  ", "loadbalancerips", service.loadBalancerIPs),
    `  headless: ${service.isHeadless}`,
    ...listLines(
      "",
      "ipfilters",
      service.ipFilters.map((filter) => [
        ...addresses("", "targetips", filter.targetIPs),
        ...scalars("", "sourceranges", filter.sourceRanges),
      ]),
    ),
    `mapip: ${service.mapIP}`,
    ...listLines(
      "",
      "ports",
      service.ports.map((port) => [
        `name: ${scalar(port.name)}`,
        `protocol: ${protocolNumbers[port.protocol]}`,
        `port: ${port.port}`,
        `nodeport: ${port.nodePort}`,
        `targetport: ${typeof port.targetPort === "number" ? port.targetPort : 0}`,
        `targetportname: ${scalar(typeof port.targetPort === "string" ? port.targetPort : "")}`,
      ]),
    ),
    `externaltraffictolocal: ${service.externalTrafficPolicy === "Local"}`,
    ...(service.clientIPAffinitySeconds === undefined
      ? ["sessionaffinity: null"]
      : ["sessionaffinity:", "  clientip:", `    timeoutseconds: ${service.clientIPAffinitySeconds}`]),
    `internaltraffictolocal: ${service.internalTrafficPolicy === "Local"}`,
    `healthchecknodeport: ${service.healthCheckNodePort}`,
    ...(service.proxyName === "" ? noLines : [`proxyname: ${scalar(service.proxyName)}`]),
    ...(hasAge && service.createdSeconds !== undefined ? [`createdseconds: ${service.createdSeconds}`] : noLines),
    ...(hasAge && service.uid !== undefined ? [`uid: ${scalar(service.uid)}`] : noLines),
    ...(service.proxyModeLoadBalancerIPs.v4.length + service.proxyModeLoadBalancerIPs.v6.length === 0
      ? noLines
      : addresses("", "proxymodeloadbalancerips", service.proxyModeLoadBalancerIPs)),
  ];
}

/** Returns the lines of an endpoint in a state file, without indentation. Pure. */
export function formatEndpoint(endpoint: Endpoint, slice: EndpointSlice, hash: bigint): string[] {
  const { conditions, hintedZones, hintedNodes } = endpoint;
  return [
    `hash: ${hash}`,
    `namespace: ${scalar(slice.namespace)}`,
    `sourcename: ${scalar(slice.name)}`,
    `servicename: ${scalar(slice.serviceName)}`,
    `podname: ${scalar(endpoint.podName)}`,
    "endpoint:",
    `  hostname: ${scalar(endpoint.hostname)}`,
    ...addresses("  ", "ips", endpoint.addresses),
    "  local: false",
    ...listLines(
      "  ",
      "portoverrides",
      endpoint.ports.flatMap(({ name, port, protocol }) => {
        // Protocols that only newer versions know are omitted, because readers of the file would reject them.
        if (typeof protocol === "number") return [];
        const protocolLine = protocol === undefined ? noLines : [`protocol: ${protocolNumbers[protocol]}`];
        return [[`name: ${scalar(name)}`, `port: ${port}`, ...protocolLine]];
      }),
    ),
    "  scopes: null",
    "conditions:",
    `  ready: ${conditions.ready}`,
    ...(conditions.serving === conditions.ready ? noLines : [`  serving: ${conditions.serving}`]),
    ...(conditions.terminating ? ["  terminating: true"] : noLines),
    "topology:",
    `  node: ${scalar(endpoint.nodeName)}`,
    `  zone: ${scalar(endpoint.zone)}`,
    ...(hintedZones.length + hintedNodes.length === 0
      ? ["hints: null"]
      : [
          "hints:",
          ...scalars("  ", "zones", hintedZones),
          ...(hintedNodes.length > 0 ? scalars("  ", "nodes", hintedNodes) : noLines),
        ]),
  ];
}

/** Values of KPNG's protocol enum. */
const protocolNumbers: Readonly<Record<Protocol, number>> = { TCP: 1, UDP: 2, SCTP: 3 };

function addresses(indent: string, key: string, set: AddressSet | undefined): string[] {
  if (set === undefined) return [`${indent}${key}: null`];
  return [`${indent}${key}:`, ...scalars(`${indent}  `, "v4", set.v4), ...scalars(`${indent}  `, "v6", set.v6)];
}

function scalars(indent: string, key: string, values: readonly string[]): string[] {
  return listLines(
    indent,
    key,
    values.map((value) => [scalar(value)]),
  );
}
