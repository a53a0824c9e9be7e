import type { AddressSet } from "../address.ts";
import type { EndpointPort } from "../endpoint.ts";
import {
  EndpointSchema,
  EndpointScopesSchema,
  EndpointUseSchema,
  IPSetSchema,
  PortNameSchema,
} from "../gen/localv1/api_pb.ts";
import type { ViewEndpoint } from "../node-view.ts";
import type { Service } from "../service.ts";
import { compareText } from "../text-order.ts";
import { tagsOf } from "./field-tags.ts";
import { MessageWriter } from "./message-writer.ts";
import { encodeProtocol } from "./service-message.ts";

const endpointTags = tagsOf(EndpointSchema);
const portTags = tagsOf(PortNameSchema);
const scopeTags = tagsOf(EndpointScopesSchema);
const useTags = tagsOf(EndpointUseSchema);
const addressTags = tagsOf(IPSetSchema);

const writer = new MessageWriter();

/**
 * The fields of an endpoint that KPNG's message has. The watcher encodes endpoints by hand in this file and not with
 * the protobuf library, because they are most of what it sends.
 */
export type KpngEndpoint = Pick<ViewEndpoint, "hostname" | "addresses" | "ports" | "isOnNode" | "scopes">;

/**
 * Returns the bytes of an endpoint's message: with `isExtended` the whole message, else exactly KPNG's. They are valid
 * until the next call of a function here.
 *
 * *Cost:* a tenth of the library's encoder: a node that connects needs a message of its own
 * for each endpoint that runs on it.
 *
 * The watcher calls it (`makeEndpointItems`), and a backend for its saved view. Separate from `endpoint-message.ts`,
 * which decodes the message with the library.
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
 * Returns the bytes that an endpoint's key is hashed from, valid until the next call.
 *
 * They are KPNG's message, extended where it is the same for different endpoints: by the address in use if that is not
 * the first of the sorted ones, and by ports whose protocol is not TCP.
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

/** The address in use of each family, where a family has several: IPs are sorted. */
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
