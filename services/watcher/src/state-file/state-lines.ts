import type { AddressSet } from "@kpng/model/address.ts";
import type { Endpoint, EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Protocol, Service } from "@kpng/model/service.ts";
import { list, map, nothing, scalar } from "./yaml-text.ts";

/** Returns the lines of a Node in a state file, without indentation. Pure. */
export function formatNode(node: Node): string[] {
  return [
    `name: ${scalar(node.name)}`,
    "topology:",
    `  node: ${scalar(node.name)}`,
    `  zone: ${scalar(node.zone)}`,
    ...map("", "labels", node.labels),
    ...map("", "annotations", node.annotations),
    ...(node.addresses.length > 0 ? scalars("", "addresses", node.addresses) : nothing),
    ...(node.podCIDRs.length > 0 ? scalars("", "podcidrs", node.podCIDRs) : nothing),
    ...(node.isEligible ? nothing : ["iseligible: false"]),
  ];
}

/** Returns the lines of a Service in a state file, without indentation. Pure. */
export function formatService(service: Service): string[] {
  return [
    `namespace: ${scalar(service.namespace)}`,
    `name: ${scalar(service.name)}`,
    `type: ${scalar(service.type)}`,
    ...map("", "labels", service.labels),
    ...map("", "annotations", service.annotations),
    "ips:",
    ...addresses("  ", "clusterips", service.clusterIPs),
    ...addresses("  ", "externalips", service.externalIPs),
    ...addresses("  ", "loadbalancerips", service.loadBalancerIPs),
    `  headless: ${service.isHeadless}`,
    ...list(
      "",
      "ipfilters",
      service.ipFilters.map((filter) => [
        ...addresses("", "targetips", filter.targetIPs),
        ...scalars("", "sourceranges", filter.sourceRanges),
      ]),
    ),
    `mapip: ${service.mapIP}`,
    ...list(
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
    ...(service.proxyName === "" ? nothing : [`proxyname: ${scalar(service.proxyName)}`]),
    ...(service.proxyModeLoadBalancerIPs.v4.length + service.proxyModeLoadBalancerIPs.v6.length === 0
      ? nothing
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
    ...list(
      "  ",
      "portoverrides",
      endpoint.ports.flatMap(({ name, port, protocol }) => {
        // Protocols that only newer versions know are omitted, because readers of the file would reject them.
        if (typeof protocol === "number") return [];
        const protocolLine = protocol === undefined ? nothing : [`protocol: ${protocolNumbers[protocol]}`];
        return [[`name: ${scalar(name)}`, `port: ${port}`, ...protocolLine]];
      }),
    ),
    "  scopes: null",
    "conditions:",
    `  ready: ${conditions.ready}`,
    ...(conditions.serving === conditions.ready ? nothing : [`  serving: ${conditions.serving}`]),
    ...(conditions.terminating ? ["  terminating: true"] : nothing),
    "topology:",
    `  node: ${scalar(endpoint.nodeName)}`,
    `  zone: ${scalar(endpoint.zone)}`,
    ...(hintedZones.length + hintedNodes.length === 0
      ? ["hints: null"]
      : [
          "hints:",
          ...scalars("  ", "zones", hintedZones),
          ...(hintedNodes.length > 0 ? scalars("  ", "nodes", hintedNodes) : nothing),
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
  return list(
    indent,
    key,
    values.map((value) => [scalar(value)]),
  );
}
