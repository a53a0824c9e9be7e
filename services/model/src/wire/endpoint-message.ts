import { create } from "@bufbuild/protobuf";
import { WireType } from "@bufbuild/protobuf/wire";
import { type AddressSet, families } from "../address.ts";
import { compareText } from "../collections.ts";
import type { EndpointConditions, EndpointPort } from "../endpoint.ts";
import {
  type Endpoint as EndpointMessage,
  EndpointSchema,
  EndpointScopesSchema,
  EndpointUseSchema,
  IPSetSchema,
  type PortName,
  PortNameSchema,
  type Protocol as WireProtocol,
} from "../gen/localv1/api_pb.ts";
import type { ViewEndpoint } from "../node-view.ts";
import type { Service } from "../service.ts";
import { shareConditions, shareScopes, shareUse } from "../shared-values.ts";
import { formatHash, hashBytes, hashText } from "./digest.ts";
import { MessageReader, MessageWriter, tagsOf, WireError } from "./protobuf.ts";
import { decodeAddressTexts, decodePortNumber, decodeProtocol, encodeProtocol } from "./service-message.ts";

const endpointTags = tagsOf(EndpointSchema);
const portTags = tagsOf(PortNameSchema);
const scopeTags = tagsOf(EndpointScopesSchema);
const useTags = tagsOf(EndpointUseSchema);
const addressTags = tagsOf(IPSetSchema);

const writer = new MessageWriter();

/** Fields of an endpoint that KPNG's message also has. */
export type KpngEndpoint = Pick<ViewEndpoint, "hostname" | "addresses" | "ports" | "isOnNode" | "scopes">;

/**
 * Encodes an endpoint: as the whole message if `isExtended`, otherwise exactly as KPNG does. The bytes are valid until
 * the next call of any function in this file. *Cost:* a tenth of the library's encoder, which matters because a node
 * that connects needs its own message for each endpoint that runs on it.
 */
export function endpointBytes(endpoint: ViewEndpoint, service: Service, isExtended: boolean): Uint8Array {
  begin(endpoint);
  if (isExtended) for (const { name, port, protocol } of endpoint.ports) writePort(name, port, protocol);
  else writeKpngPorts(endpoint.ports, service);
  writeScopes(endpoint);
  if (isExtended) writeExtended(endpoint);
  return writer.finish();
}

/**
 * Returns the bytes whose hash becomes an endpoint's key; they are valid until the next call. They are KPNG's message,
 * with additions to distinguish endpoints that would otherwise have the same message: the address in use, if it is not
 * the first of the sorted addresses, and ports whose protocol is not TCP.
 */
export function distinctEndpointBytes(endpoint: KpngEndpoint, service: Service): Uint8Array {
  const { addresses, ports } = endpoint;
  begin(endpoint);
  writeKpngPorts(ports, service);
  for (const { name, port, protocol = "TCP" } of ports) if (protocol !== "TCP") writePort(name, port, protocol);
  writeScopes(endpoint);
  if (sorted(addresses.v4)[0] !== addresses.v4[0] || sorted(addresses.v6)[0] !== addresses.v6[0]) {
    writeFirstAddresses(addresses);
  }
  return writer.finish();
}

/** Begins a message with the fields up to Local. */
function begin({ hostname, addresses, isOnNode }: KpngEndpoint): void {
  writer.begin();
  writer.string(endpointTags.Hostname, hostname);
  writeAddresses(endpointTags.IPs, addresses.v4, addresses.v6);
  writer.bool(endpointTags.Local, isOnNode);
}

/**
 * Writes the ports as KPNG does.
 *
 * A Service port without a name but with a named target port (`port: 80, targetPort: http`) gets a second entry under
 * the target port's name. KPNG's clients look there, and reject the Service's traffic if the entry is missing.
 */
function writeKpngPorts(ports: readonly EndpointPort[], service: Service): void {
  for (const { name, port } of ports) writePort(name, port);
  for (const { name, targetPort } of service.ports) {
    if (name !== "" || typeof targetPort === "number") continue;
    const unnamed = ports.find((port) => port.name === "");
    if (unnamed !== undefined) writePort(targetPort, unnamed.port);
  }
}

function writePort(name: string, port: number, protocol?: EndpointPort["protocol"]): void {
  const start = writer.open(endpointTags.PortOverrides);
  writer.string(portTags.Name, name);
  writer.number(portTags.Port, port);
  if (protocol !== undefined) writer.number(portTags.Protocol, encodeProtocol(protocol));
  writer.close(start);
}

function writeScopes({ scopes }: KpngEndpoint): void {
  const start = writer.open(endpointTags.Scopes);
  writer.bool(scopeTags.Internal, scopes.internal);
  writer.bool(scopeTags.External, scopes.external);
  writer.close(start);
}

function writeExtended({ use, conditions, addresses, podName, nodeName }: ViewEndpoint): void {
  const start = writer.open(endpointTags.Use);
  writer.bool(useTags.Cluster, use.cluster);
  writer.bool(useTags.Local, use.local);
  writer.bool(useTags.Ready, conditions.ready);
  writer.bool(useTags.Serving, conditions.serving);
  writer.bool(useTags.Terminating, conditions.terminating);
  writer.close(start);
  writeFirstAddresses(addresses);
  writer.string(endpointTags.PodName, podName);
  writer.string(endpointTags.NodeName, nodeName);
}

/** Writes the address in use of each family that has several addresses, because the message's IPs are sorted. */
function writeFirstAddresses({ v4, v6 }: AddressSet): void {
  if (v4.length > 1 || v6.length > 1) writeAddresses(endpointTags.FirstIPs, v4.slice(0, 1), v6.slice(0, 1));
}

function writeAddresses(tag: number, v4: AddressSet["v4"], v6: AddressSet["v6"]): void {
  const start = writer.open(tag);
  for (const address of sorted(v4)) writer.element(addressTags.V4, address);
  for (const address of sorted(v6)) writer.element(addressTags.V6, address);
  writer.close(start);
}

function sorted(texts: readonly string[]): readonly string[] {
  return texts.length < 2 ? texts : texts.toSorted(compareText);
}

/** Sets FirstIPs; see `writeFirstAddresses`. */
export function setFirstAddresses(message: EndpointMessage, { v4, v6 }: AddressSet): void {
  if (v4.length > 1 || v6.length > 1) {
    message.FirstIPs = create(IPSetSchema, { V4: v4.slice(0, 1), V6: v6.slice(0, 1) });
  }
}

/** Decodes the message of an endpoint, which `bytes` contain from `start` to `end`. Errors: WireError. */
export function decodeEndpoint(key: string, bytes: Uint8Array, start = 0, end = bytes.length): ViewEndpoint {
  const reader = new MessageReader(bytes, start, end);
  const [addresses, firstAddresses, ports]: [string[], string[], EndpointPort[]] = [[], [], []];
  let [hostname, podName, nodeName, isOnNode] = ["", "", "", false];
  // Flags as `readFlags` returns them.
  let [use, scopes]: [number | undefined, number | undefined] = [undefined, undefined];
  for (let tag = reader.next(); tag !== 0; tag = reader.next()) {
    if (tag === endpointTags.Hostname) hostname = reader.string();
    else if (tag === endpointTags.IPs) readAddresses(reader, addresses);
    else if (tag === endpointTags.Local) isOnNode = reader.bool();
    else if (tag === endpointTags.PortOverrides) ports.push(readPort(reader));
    else if (tag === endpointTags.Scopes) scopes = readFlags(reader, scopes);
    else if (tag === endpointTags.Use) use = readFlags(reader, use);
    else if (tag === endpointTags.FirstIPs) readAddresses(reader, firstAddresses);
    else if (tag === endpointTags.PodName) podName = reader.string();
    else if (tag === endpointTags.NodeName) nodeName = reader.string();
    else reader.skip(tag);
  }
  return {
    key,
    addresses: firstToFront(decodeAddressTexts(addresses), decodeAddressTexts(firstAddresses)),
    ports,
    hostname,
    podName,
    nodeName,
    isOnNode,
    // KPNG's watcher does not send Use. Then all endpoints are in the Cluster set, and on-node endpoints also in the
    // Local set.
    use:
      use === undefined ? shareUse(true, isOnNode) : shareUse(isSet(use, useTags.Cluster), isSet(use, useTags.Local)),
    conditions: use === undefined ? shareConditions(true, true, false) : conditionsIn(use),
    scopes:
      scopes === undefined
        ? shareScopes(true, true)
        : shareScopes(isSet(scopes, scopeTags.Internal), isSet(scopes, scopeTags.External)),
  };
}

function readAddresses(reader: MessageReader, to: string[]): void {
  const end = reader.enter();
  for (let tag = reader.next(); tag !== 0; tag = reader.next()) {
    if (tag === addressTags.V4 || tag === addressTags.V6) to.push(reader.string());
    else reader.skip(tag);
  }
  reader.leave(end);
}

function readPort(reader: MessageReader): EndpointPort {
  let [Name, Port, Protocol]: [string, number, number] = ["", 0, 0];
  const end = reader.enter();
  for (let tag = reader.next(); tag !== 0; tag = reader.next()) {
    if (tag === portTags.Name) Name = reader.string();
    else if (tag === portTags.Port) Port = reader.number();
    else if (tag === portTags.Protocol) Protocol = reader.number();
    else reader.skip(tag);
  }
  reader.leave(end);
  return decodeEndpointPort({ Name, Port, Protocol: Protocol as WireProtocol });
}

function conditionsIn(use: number): EndpointConditions {
  const { Ready, Serving, Terminating } = useTags;
  return shareConditions(isSet(use, Ready), isSet(use, Serving), isSet(use, Terminating));
}

/** Reads a message of booleans over those that came before; returns a bit for each field number below 32. */
function readFlags(reader: MessageReader, before = 0): number {
  let flags = before;
  const end = reader.enter();
  for (let tag = reader.next(); tag !== 0; tag = reader.next()) {
    if ((tag & 7) !== WireType.Varint || tag >>> 3 > 31) reader.skip(tag);
    else {
      const flag = 1 << (tag >>> 3);
      flags = reader.bool() ? flags | flag : flags & ~flag;
    }
  }
  reader.leave(end);
  return flags;
}

function isSet(flags: number, tag: number): boolean {
  return (flags & (1 << (tag >>> 3))) !== 0;
}

/** Decodes a port of an endpoint. Errors: WireError. */
export function decodeEndpointPort(message: Pick<PortName, "Name" | "Port" | "Protocol">): EndpointPort {
  const port = decodePortNumber(message.Port);
  if (port === 0) throw new WireError(`port "${message.Name}" of an endpoint has no number`);
  const protocol = decodeProtocol(message.Protocol) ?? (message.Protocol || undefined);
  return protocol === undefined ? { name: message.Name, port } : { name: message.Name, port, protocol };
}

/** Moves the address in use of each family to the front, because the IPs in a message are sorted. */
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

/** Properties of an endpoint's origin on which its key depends. */
interface EndpointIdentity {
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
 * The key depends only on this endpoint and its use, not on other endpoints. Endpoints that differ in slice, family,
 * addresses or ports have different keys.
 *
 * | endpoint | key |
 * |---|---|
 * | not a pod | XXH64 of `distinctEndpointBytes`, e.g. "1a8f6a00a703bcd8" (as KPNG, with two exceptions) |
 * | pod of a state file | the pod's name, e.g. "web-1" (as KPNG) |
 * | pod of an EndpointSlice | name, dot, XXH64 of slice, addresses and ports, e.g. "web-1.86f3c1d9a0b2e475" |
 */
export function endpointKey(endpoint: KpngEndpoint, service: Service, identity: EndpointIdentity): string {
  if (identity.podName === "") {
    return formatHash(hashBytes(distinctEndpointBytes(endpoint, service)));
  }
  if (identity.hasPodKey && identity.isWhole) return identity.podName;
  const { addresses, ports } = endpoint;
  const portTexts = ports.map(({ name, port, protocol }) => `${name}/${protocol ?? ""}/${port}`);
  // Only the position of the first address survives encoding, because messages sort the other addresses.
  const addressText = ([first = "", ...others]: readonly string[]): string => [first, ...others.sort()].join();
  const content = [identity.sliceName, addressText(addresses.v4), addressText(addresses.v6), portTexts.join()].join(
    "|",
  );
  return `${identity.podName}.${formatHash(hashText(content))}`;
}
