import { create } from "@bufbuild/protobuf";
import type { Endpoint, EndpointSlice } from "@kpng/model/endpoint.ts";
import { type Endpoint as EndpointMessage, EndpointSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { listAddresses, protocolMessage } from "./service-row.ts";

/**
 * Yields the messages, in the inspection API, of the endpoints of a Service that match the filter. `kpng get endpoints`
 * shows them. Pure. Separate, because the methods ListEndpoints and WatchEndpoints both call it. Unlike `decisionRow`,
 * it does not depend on a node.
 */
export function* endpointRows(slices: readonly EndpointSlice[], filter: EndpointFilter): Iterable<EndpointMessage> {
  const { node, endpoint: wanted } = filter;
  for (const slice of slices) {
    for (const endpoint of slice.endpoints) {
      const isOnNode = node === "" || endpoint.nodeName === node;
      if (isOnNode && matchesEndpoint(endpoint, wanted)) yield endpointRow(slice, endpoint);
    }
  }
}

/** Filter of the methods that list or watch endpoints; "" matches all. */
export interface EndpointFilter {
  readonly node: string;
  /** An address, or the name of a pod. */
  readonly endpoint: string;
}

/** True if `text` is "", the pod of the endpoint, or one of its addresses. */
export function matchesEndpoint({ podName, addresses }: Endpoint, text: string): boolean {
  return text === "" || text === podName || addresses.v4.includes(text) || addresses.v6.includes(text);
}

/** Key of an endpoint row in a watch. *Shape:* `namespace/service/slice/address`. */
export function endpointRowKey({ namespace, service, slice, addresses }: EndpointMessage): string {
  return `${namespace}/${service}/${slice}/${addresses[0] ?? ""}`;
}

function endpointRow(slice: EndpointSlice, endpoint: Endpoint): EndpointMessage {
  const { conditions } = endpoint;
  return create(EndpointSchema, {
    namespace: slice.namespace,
    service: slice.serviceName,
    slice: slice.name,
    addresses: listAddresses(endpoint.addresses),
    ports: endpoint.ports.map(({ name, port, protocol }) => ({ name, port, protocol: protocolMessage(protocol) })),
    pod: endpoint.podName,
    node: endpoint.nodeName,
    zone: endpoint.zone,
    isReady: conditions.ready,
    isServing: conditions.serving,
    isTerminating: conditions.terminating,
    hintedZones: [...endpoint.hintedZones],
    hintedNodes: [...endpoint.hintedNodes],
  });
}
