import { create } from "@bufbuild/protobuf";
import { type AddressSet, families, noAddresses } from "../address.ts";
import type { EndpointPort } from "../endpoint.ts";
import { type Endpoint as EndpointMessage, IPSetSchema, type PortName } from "../gen/localv1/api_pb.ts";
import type { ViewEndpoint } from "../node-view.ts";
import type { Service } from "../service.ts";
import { shareConditions, sharePorts, shareScopes, shareText, shareUse } from "../shared-values.ts";
import { decodeAddresses } from "./addresses.ts";
import { distinctEndpointBytes, type KpngEndpoint } from "./endpoint-bytes.ts";
import { formatHash, hashBytes, hashText } from "./hash.ts";
import { decodePortNumber, decodeProtocol } from "./service-message.ts";
import { WireError } from "./wire-error.ts";

/**
 * Sets FirstIPs to the address in use of each family if a family has several: IPs are sorted. This file decodes KPNG's
 * message of an endpoint and computes its key; `endpoint-bytes.ts` encodes the message. `encodeEndpointInfo` calls it,
 * for the stream of a relay.
 */
export function setFirstAddresses(message: EndpointMessage, { v4, v6 }: AddressSet): void {
  if (v4.length > 1 || v6.length > 1) {
    message.FirstIPs = create(IPSetSchema, { V4: v4.slice(0, 1), V6: v6.slice(0, 1) });
  }
}

/** Returns the endpoint in a message. Errors: WireError. `decodeLocalOp` calls it. */
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
    // KPNG's watcher does not send Use: all endpoints are in the Cluster set, on-node endpoints in the Local set too.
    use: use === undefined ? shareUse(true, isOnNode) : shareUse(use.Cluster, use.Local),
    conditions:
      use === undefined ? shareConditions(true, true, false) : shareConditions(use.Ready, use.Serving, use.Terminating),
    scopes: shareScopes(message.Scopes?.Internal ?? true, message.Scopes?.External ?? true),
  };
}

/** Returns a port of an endpoint. Errors: WireError. */
export function decodeEndpointPort(message: PortName): EndpointPort {
  const port = decodePortNumber(message.Port);
  if (port === 0) throw new WireError(`port "${message.Name}" of an endpoint has no number`);
  const protocol = decodeProtocol(message.Protocol) ?? (message.Protocol || undefined);
  return protocol === undefined ? { name: message.Name, port } : { name: message.Name, port, protocol };
}

/** Returns the set with the address in use of each family first: IPs of a message are sorted. */
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

/** Origin of an endpoint, as far as its key depends on it. */
export interface EndpointIdentity {
  /** "" if the endpoint is not a pod. */
  readonly podName: string;
  readonly sliceName: string;
  /** See EndpointSlice.hasPodKeys. */
  readonly hasPodKey: boolean;
  /** False if the endpoint was split into parts that the node uses in different ways. */
  readonly isWhole: boolean;
}

/**
 * Returns the key of an endpoint within its Service.
 *
 * It depends only on this endpoint, not on others. Endpoints that differ in slice, family, addresses or ports have
 * different keys.
 *
 * | endpoint | key |
 * |---|---|
 * | not a pod | XXH64 of `distinctEndpointBytes`, e.g. "1a8f6a00a703bcd8" (as KPNG, with two exceptions) |
 * | pod of a state file | the pod's name, e.g. "web-1" (as KPNG) |
 * | pod of an EndpointSlice | name, dot, XXH64 of slice, addresses and ports, e.g. "web-1.86f3c1d9a0b2e475" |
 *
 * `viewEndpoints` calls it.
 */
export function endpointKey(endpoint: KpngEndpoint, service: Service, identity: EndpointIdentity): string {
  if (identity.podName === "") {
    return formatHash(hashBytes(distinctEndpointBytes(endpoint, service)));
  }
  if (identity.hasPodKey && identity.isWhole) return identity.podName;
  const { addresses, ports } = endpoint;
  const portTexts = ports.map(({ name, port, protocol }) => `${name}/${protocol ?? ""}/${port}`);
  // Messages sort the addresses behind the first one.
  const addressText = ([first = "", ...others]: readonly string[]): string => [first, ...others.sort()].join();
  const content = [identity.sliceName, addressText(addresses.v4), addressText(addresses.v6), portTexts.join()].join(
    "|",
  );
  return `${identity.podName}.${formatHash(hashText(content))}`;
}
