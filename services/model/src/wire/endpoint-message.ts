import { create, toBinary } from "@bufbuild/protobuf";
import { type AddressSet, families, noAddresses } from "../address.ts";
import type { EndpointPort } from "../endpoint.ts";
import {
  type Endpoint as EndpointMessage,
  EndpointSchema,
  EndpointUseSchema,
  IPSetSchema,
  type PortName,
} from "../gen/localv1/api_pb.ts";
import type { ViewEndpoint } from "../node-view.ts";
import type { Service } from "../service.ts";
import { shareConditions, sharePorts, shareScopes, shareText, shareUse } from "../shared-values.ts";
import { decodeAddresses, encodeAddresses } from "./addresses.ts";
import { formatHash, hashBytes, hashText } from "./hash.ts";
import { decodePortNumber, decodeProtocol, encodeProtocol } from "./service-message.ts";
import { WireError } from "./wire-error.ts";

/** An endpoint as far as KPNG can tell it. */
type KpngEndpoint = Pick<ViewEndpoint, "hostname" | "addresses" | "ports" | "isOnNode" | "scopes">;

/** Returns exactly KPNG's message. */
export function encodeKpngEndpoint(endpoint: KpngEndpoint, service: Service): EndpointMessage {
  return create(EndpointSchema, {
    Hostname: endpoint.hostname,
    IPs: encodeAddresses(endpoint.addresses) ?? {},
    Local: endpoint.isOnNode,
    PortOverrides: portOverrides(endpoint.ports, service),
    Scopes: { Internal: endpoint.scopes.internal, External: endpoint.scopes.external },
  });
}

/** Returns the message for a subscriber that understands our fields. */
export function encodeExtendedEndpoint(endpoint: ViewEndpoint, service: Service): EndpointMessage {
  const message = encodeKpngEndpoint(endpoint, service);
  message.PortOverrides = endpoint.ports.map((port) => ({
    ...portName(port.name, port.port),
    Protocol: port.protocol === undefined ? 0 : encodeProtocol(port.protocol),
  }));
  message.Use = create(EndpointUseSchema, {
    Cluster: endpoint.use.cluster,
    Local: endpoint.use.local,
    Ready: endpoint.conditions.ready,
    Serving: endpoint.conditions.serving,
    Terminating: endpoint.conditions.terminating,
  });
  setFirstAddresses(message, endpoint.addresses);
  message.PodName = endpoint.podName;
  message.NodeName = endpoint.nodeName;
  return message;
}

/** IPs are sorted, so where a family has several, the one in use is named apart. */
export function setFirstAddresses(message: EndpointMessage, { v4, v6 }: AddressSet): void {
  if (v4.length > 1 || v6.length > 1) {
    message.FirstIPs = create(IPSetSchema, { V4: v4.slice(0, 1), V6: v6.slice(0, 1) });
  }
}

/**
 * The ports of an endpoint in KPNG's words.
 *
 * A Service port without a name but with a named target port (`port: 80, targetPort: http`) gets a second entry under
 * the target port's name: Go clients look there, and refuse the Service's traffic if they find nothing.
 */
export function portOverrides(ports: readonly EndpointPort[], service: Service): PortName[] {
  const overrides = ports.map(({ name, port }) => portName(name, port));
  for (const servicePort of service.ports) {
    if (servicePort.name !== "" || typeof servicePort.targetPort === "number") continue;
    const unnamed = ports.find((port) => port.name === "");
    if (unnamed !== undefined) overrides.push(portName(servicePort.targetPort, unnamed.port));
  }
  return overrides;
}

function portName(Name: string, Port: number): PortName {
  return { $typeName: "localv1.PortName", Name, Port, Protocol: 0 };
}

/** Returns an endpoint of a Service in a node's view. Errors: WireError. */
export function decodeEndpoint(key: string, message: EndpointMessage): ViewEndpoint {
  const { Use: use, Local: isOnNode } = message;
  return {
    key,
    addresses: firstToFront(decodeAddresses(message.IPs) ?? noAddresses, decodeAddresses(message.FirstIPs)),
    ports: sharePorts(message.PortOverrides.map(decodeEndpointPort)),
    hostname: message.Hostname,
    podName: message.PodName,
    nodeName: shareText(message.NodeName),
    isOnNode,
    // A Go watcher says no more than Scopes: what it sends for a policy is in that policy's set.
    use: use === undefined ? shareUse(true, isOnNode) : shareUse(use.Cluster, use.Local),
    conditions:
      use === undefined ? shareConditions(true, true, false) : shareConditions(use.Ready, use.Serving, use.Terminating),
    scopes: shareScopes(message.Scopes?.Internal ?? true, message.Scopes?.External ?? true),
  };
}

export function decodeEndpointPort(message: PortName): EndpointPort {
  const port = decodePortNumber(message.Port);
  if (port === 0) throw new WireError(`port "${message.Name}" of an endpoint has no number`);
  const protocol = decodeProtocol(message.Protocol) ?? (message.Protocol || undefined);
  return protocol === undefined ? { name: message.Name, port } : { name: message.Name, port, protocol };
}

/** Undoes the sorting as far as it matters: the address in use comes first. */
export function firstToFront(set: AddressSet, first: AddressSet | undefined): AddressSet {
  if (first === undefined) return set;
  const ordered = { v4: set.v4, v6: set.v6 };
  for (const family of families) {
    const address = first[family][0];
    if (address !== undefined && set[family].includes(address)) {
      ordered[family] = [address, ...set[family].filter((other) => other !== address)];
    }
  }
  return ordered;
}

/**
 * KPNG's message, and what it does not say but tells endpoints apart: which address is in use, where that is not the
 * first of the sorted ones, and the protocols of ports, where they are not TCP.
 */
function encodeDistinctEndpoint(endpoint: KpngEndpoint, service: Service): EndpointMessage {
  const message = encodeKpngEndpoint(endpoint, service);
  const { addresses, ports } = endpoint;
  if (message.IPs?.V4[0] !== addresses.v4[0] || message.IPs?.V6[0] !== addresses.v6[0]) {
    setFirstAddresses(message, addresses);
  }
  const others = ports.filter(({ protocol }) => protocol !== undefined && protocol !== "TCP");
  for (const { name, port, protocol = "TCP" } of others) {
    message.PortOverrides.push({ ...portName(name, port), Protocol: encodeProtocol(protocol) });
  }
  return message;
}

export interface EndpointIdentity {
  readonly podName: string;
  readonly sliceName: string;
  /** See EndpointSlice.hasPodKeys. */
  readonly hasPodKey: boolean;
  /** True if `endpoint` is all of what the slice says, false if it is one of several parts used in different ways. */
  readonly isWhole: boolean;
}

/**
 * The key of an endpoint within its Service, a function of this endpoint alone: what other endpoints exist never changes
 * it, and two endpoints that differ in slice, family, addresses or ports never share one.
 *
 * | endpoint | key |
 * |---|---|
 * | no pod | XXH64 of KPNG's message, 16 hex digits or fewer, e.g. "1a8f6a00a703bcd8" (as KPNG, with two exceptions) |
 * | pod of a state file | the pod's name, e.g. "web-1" (as KPNG) |
 * | pod of an EndpointSlice | name, dot, XXH64 of slice, addresses and ports, e.g. "web-1.86f3c1d9a0b2e475" |
 */
export function endpointKey(endpoint: KpngEndpoint, service: Service, identity: EndpointIdentity): string {
  if (identity.podName === "") {
    return formatHash(hashBytes(toBinary(EndpointSchema, encodeDistinctEndpoint(endpoint, service))));
  }
  if (identity.hasPodKey && identity.isWhole) return identity.podName;
  const { addresses, ports } = endpoint;
  const portTexts = ports.map(({ name, port, protocol }) => `${name}/${protocol ?? ""}/${port}`);
  const content = [identity.sliceName, addresses.v4.join(), addresses.v6.join(), portTexts.join()].join("|");
  return `${identity.podName}.${formatHash(hashText(content))}`;
}
