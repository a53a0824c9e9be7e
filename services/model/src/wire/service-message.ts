import { isIP } from "node:net";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type AddressSet, noAddresses, parseCidr, toAddressSet, withoutDottedIPv6 } from "../address.ts";
import { compareText } from "../collections.ts";
import {
  type FamilyFlags as FamilyFlagsMessage,
  type IPSet,
  IPSetSchema,
  type PortMapping,
  type PortMappingSchema,
  type Service as ServiceMessage,
  ServiceSchema,
  Protocol as WireProtocol,
} from "../gen/localv1/api_pb.ts";
import type { FamilyFlags } from "../node-view.ts";
import {
  hasAddress,
  type IPFilter,
  type Protocol,
  type Service,
  type ServicePort,
  type ServiceType,
  type UnknownPort,
} from "../service.ts";
import { WireError } from "./protobuf.ts";

/** Fields that KPNG does not have, sent only to subscribers with Feature Extended. */
interface ServiceExtension {
  readonly portHasEndpoints?: readonly FamilyFlags[] | undefined;
}

/** Creates the message of a Service; without `extension`, it is exactly KPNG's message. */
export function encodeService(service: Service, extension?: ServiceExtension): ServiceMessage {
  return create(ServiceSchema, {
    Namespace: service.namespace,
    Name: service.name,
    Type: service.type,
    Labels: sortedByKey(service.labels),
    Annotations: sortedByKey(service.annotations),
    IPs: {
      ...setIfDefined("ClusterIPs", encodeAddresses(service.clusterIPs)),
      ...setIfDefined("ExternalIPs", encodeAddresses(service.externalIPs)),
      ...setIfDefined("LoadBalancerIPs", encodeAddresses(service.loadBalancerIPs)),
      Headless: service.isHeadless,
    },
    IPFilters: service.ipFilters.map((filter) => ({
      ...setIfDefined("TargetIPs", encodeAddresses(filter.targetIPs)),
      SourceRanges: [...filter.sourceRanges],
    })),
    MapIP: service.mapIP,
    Ports: [
      ...service.ports.map((port, index) => encodePort(port, extension?.portHasEndpoints?.[index])),
      ...(service.unknownPorts ?? []).map((port) => encodePort(port, undefined)),
    ],
    ExternalTrafficToLocal: service.externalTrafficPolicy === "Local",
    InternalTrafficToLocal: service.internalTrafficPolicy === "Local",
    SessionAffinity:
      service.clientIPAffinitySeconds === undefined
        ? { case: undefined }
        : { case: "ClientIP", value: { TimeoutSeconds: service.clientIPAffinitySeconds } },
    HealthCheckNodePort: service.healthCheckNodePort,
    ...(extension !== undefined && hasAddress(service.proxyModeLoadBalancerIPs)
      ? setIfDefined("ProxyModeLoadBalancerIPs", encodeAddresses(service.proxyModeLoadBalancerIPs))
      : {}),
    ...(extension === undefined ? {} : { CreatedSeconds: BigInt(service.createdSeconds ?? 0), UID: service.uid ?? "" }),
  });
}

function encodePort(
  port: ServicePort | UnknownPort,
  hasEndpoints: FamilyFlags | undefined,
): MessageInitShape<typeof PortMappingSchema> {
  return {
    Name: port.name,
    Protocol: encodeProtocol(port.protocol),
    Port: port.port,
    NodePort: port.nodePort,
    TargetPort: typeof port.targetPort === "number" ? port.targetPort : 0,
    TargetPortName: typeof port.targetPort === "string" ? port.targetPort : "",
    ...(hasEndpoints === undefined ? {} : { HasEndpoints: { V4: hasEndpoints.v4, V6: hasEndpoints.v6 } }),
  };
}

/** Decodes the message of a Service. `proxyName` is not part of the message. Errors: WireError. */
export function decodeServiceMessage(message: ServiceMessage, proxyName = ""): Service {
  const ports = message.Ports.filter(isKnownPort);
  const unknownPorts = message.Ports.filter((port) => !isKnownPort(port));
  return {
    namespace: message.Namespace,
    name: message.Name,
    type: decodeType(message.Type),
    ...(message.CreatedSeconds === 0n ? {} : { createdSeconds: Number(message.CreatedSeconds) }),
    ...(message.UID === "" ? {} : { uid: message.UID }),
    proxyName,
    labels: message.Labels,
    annotations: message.Annotations,
    isHeadless: message.IPs?.Headless ?? false,
    clusterIPs: decodeAddresses(message.IPs?.ClusterIPs),
    externalIPs: decodeAddresses(message.IPs?.ExternalIPs),
    loadBalancerIPs: decodeAddresses(message.IPs?.LoadBalancerIPs),
    proxyModeLoadBalancerIPs: decodeAddresses(message.ProxyModeLoadBalancerIPs) ?? noAddresses,
    ipFilters: message.IPFilters.map((filter): IPFilter => {
      const sourceRanges = filter.SourceRanges.map(decodeCidr);
      return filter.TargetIPs === undefined
        ? { sourceRanges }
        : { targetIPs: decodeAddresses(filter.TargetIPs), sourceRanges };
    }),
    mapIP: message.MapIP,
    ports: ports.map((port) => ({ ...decodePort(port), protocol: decodeProtocol(port.Protocol) ?? "TCP" })),
    ...(unknownPorts.length === 0
      ? {}
      : { unknownPorts: unknownPorts.map((port) => ({ ...decodePort(port), protocol: port.Protocol })) }),
    internalTrafficPolicy: message.InternalTrafficToLocal ? "Local" : "Cluster",
    externalTrafficPolicy: message.ExternalTrafficToLocal ? "Local" : "Cluster",
    clientIPAffinitySeconds:
      message.SessionAffinity.case === "ClientIP"
        ? decodeAffinitySeconds(message.SessionAffinity.value.TimeoutSeconds)
        : undefined,
    healthCheckNodePort: decodePortNumber(message.HealthCheckNodePort),
  };
}

/** False for a protocol that only a newer watcher knows. An unset protocol (from KPNG's watcher) means TCP. */
function isKnownPort({ Protocol: protocol }: PortMapping): boolean {
  return protocol === WireProtocol.UnknownProtocol || decodeProtocol(protocol) !== undefined;
}

/** Returns HasEndpoints of each known port; undefined if a port lacks the field because it was not requested. */
export function decodePortHasEndpoints(message: ServiceMessage): readonly FamilyFlags[] | undefined {
  const flags = message.Ports.filter(isKnownPort).map((port) => port.HasEndpoints);
  return flags.every((flag): flag is FamilyFlagsMessage => flag !== undefined)
    ? flags.map((flag) => ({ v4: flag.V4, v6: flag.V6 }))
    : undefined;
}

function decodePort(message: PortMapping): Omit<ServicePort, "protocol"> {
  return {
    name: message.Name,
    port: decodePortNumber(message.Port),
    nodePort: decodePortNumber(message.NodePort),
    targetPort: message.TargetPortName !== "" ? message.TargetPortName : decodePortNumber(message.TargetPort),
  };
}

function decodeType(text: string): ServiceType {
  switch (text) {
    case "ClusterIP":
    case "NodePort":
    case "LoadBalancer":
    case "ExternalName":
      return text;
    // The type is optional in KPNG's state files.
    case "":
      return "ClusterIP";
    default:
      throw new WireError(`"${text}" is not a Service type`);
  }
}

/** Returns the canonical form of a CIDR. Errors: WireError. */
export function decodeCidr(text: string): string {
  const parsed = parseCidr(withoutDottedIPv6(text));
  if (parsed === undefined) throw new WireError(`"${text}" is not a CIDR`);
  return parsed.cidr;
}

/** Checks a port number, 0 to 65535. Errors: WireError. */
export function decodePortNumber(value: number): number {
  if (value < 0 || value > 65_535) throw new WireError(`${value} is not a port number`);
  return value;
}

/** Rejects a value that would make iptables reject the rules of all Services. */
function decodeAffinitySeconds(value: number): number {
  if (value < 1) throw new WireError(`the timeout of session affinity is ${value} s; it must be at least 1 s`);
  return value;
}

/** Returns the wire value of a protocol; numbers are unknown protocols and are returned unchanged. */
export function encodeProtocol(protocol: Protocol | number): WireProtocol {
  return typeof protocol === "number" ? (protocol as WireProtocol) : WireProtocol[protocol];
}

/** Decodes a protocol; undefined for UnknownProtocol and for values that only a newer peer knows. */
export function decodeProtocol(protocol: WireProtocol): Protocol | undefined {
  switch (protocol) {
    case WireProtocol.TCP:
      return "TCP";
    case WireProtocol.UDP:
      return "UDP";
    case WireProtocol.SCTP:
      return "SCTP";
    default:
      return undefined;
  }
}

/** Returns the entries in ascending order, so that equal maps have equal bytes and hashes. */
export function sortedByKey(map: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(map).sort(([a], [b]) => compareText(a, b)));
}

/** Returns an object with one field; an empty one for undefined, which protobuf-es does not take for absent. */
export function setIfDefined<K extends string, V>(name: K, value: V | undefined): { readonly [N in K]?: V } {
  return value === undefined ? {} : ({ [name]: value } as { readonly [N in K]?: V });
}

/** Encodes a set of addresses, sorted bytewise as KPNG does. Returns undefined for undefined. */
export function encodeAddresses(set: AddressSet | undefined): IPSet | undefined {
  if (set === undefined) return undefined;
  return create(IPSetSchema, { V4: [...set.v4].sort(compareText), V6: [...set.v6].sort(compareText) });
}

/**
 * Decodes a set of addresses to its canonical form. Returns undefined for undefined. IPv6 addresses that `parseAddress`
 * rejects are left out: the API server may accept them, KPNG's watcher may pass them on, and an error would end the
 * stream. Errors: WireError.
 */
export function decodeAddresses(set: IPSet | undefined): AddressSet | undefined {
  return set && decodeAddressTexts([...set.V4, ...set.V6]);
}

/** Returns the addresses of both families in canonical form. Errors: WireError. */
export function decodeAddressTexts(texts: readonly string[]): AddressSet {
  if (texts.length === 0) return noAddresses;
  const decoded = toAddressSet(texts);
  const invalid = decoded.invalid.filter((text) => isIP(text) === 0);
  if (invalid.length > 0) throw new WireError(`"${invalid.join('", "')}" is not an IP address`);
  return decoded.set;
}
