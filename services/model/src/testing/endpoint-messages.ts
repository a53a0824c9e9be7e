import { create } from "@bufbuild/protobuf";
import type { EndpointPort } from "../endpoint.ts";
import {
  type Endpoint as EndpointMessage,
  EndpointSchema,
  EndpointUseSchema,
  type PortName,
} from "../gen/localv1/api_pb.ts";
import type { ViewEndpoint } from "../node-view.ts";
import type { Service } from "../service.ts";
import { type KpngEndpoint, setFirstAddresses } from "../wire/endpoint-message.ts";
import { encodeAddresses, encodeProtocol } from "../wire/service-message.ts";

// Encodes endpoints with the protobuf library. Tests compare the bytes of `wire/endpoint-message.ts`,
// which encodes by hand, with these messages.

/** Returns the message of `endpointBytes` for KPNG's clients. */
export function encodeKpngEndpoint(endpoint: KpngEndpoint, service: Service): EndpointMessage {
  return create(EndpointSchema, {
    Hostname: endpoint.hostname,
    IPs: encodeAddresses(endpoint.addresses) ?? {},
    Local: endpoint.isOnNode,
    PortOverrides: portOverrides(endpoint.ports, service),
    Scopes: { Internal: endpoint.scopes.internal, External: endpoint.scopes.external },
  });
}

/** Returns the message of `endpointBytes` with `isExtended`. */
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

function portOverrides(ports: readonly EndpointPort[], service: Service): PortName[] {
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

/** Returns the message of `distinctEndpointBytes`. */
export function encodeDistinctEndpoint(endpoint: KpngEndpoint, service: Service): EndpointMessage {
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
