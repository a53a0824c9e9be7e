import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { EndpointPort } from "@kpng/model/endpoint.ts";
import type { EndpointUse, ViewEndpoint } from "@kpng/model/node-view.ts";
import type { Service } from "@kpng/model/service.ts";
import { endpointKey } from "@kpng/model/wire/endpoint-message.ts";
import type { MergedEndpoint, PortEndpoint } from "./merge-slices.ts";

/**
 * Returns an endpoint as the view of a node contains it. The use of an endpoint says whether traffic with policy
 * Cluster, and traffic with policy Local, may go to it on this node; it can differ by port and address family. The
 * result is one endpoint if all ports and families have the same use, otherwise one for each use and family, with its
 * ports and addresses. Ports without a use are left out.
 *
 * `makeServiceView` calls it for a view as a value, `items/endpoint-items.ts` for the messages of streams. Separate
 * from `chooseEndpoints`, which decides before which endpoints have a use. Pure; O(ports × families).
 */
export function viewEndpoints(
  service: Service,
  { endpoint, slice, portEndpoints }: MergedEndpoint,
  uses: Uses,
  isOnNode: boolean,
): ViewEndpoint[] {
  const used = portEndpoints.flatMap((portEndpoint, index): Used[] => {
    const use = uses[index];
    return portEndpoint === undefined || use === undefined ? [] : [{ portEndpoint, use }];
  });
  const isWhole = used.length === portEndpoints.length && used.every(({ use }) => isSameUse(use, used[0]?.use));
  const parts = isWhole
    ? [used]
    : [...Map.groupBy(used, ({ portEndpoint, use }) => `${portEndpoint.family} ${use.cluster} ${use.local}`).values()];
  return parts.flatMap((part) => {
    const sample = part[0];
    if (sample === undefined) return [];
    const item = {
      addresses: isWhole ? endpoint.addresses : onlyFamily(endpoint.addresses, sample.portEndpoint.family),
      ports: isWhole
        ? endpoint.ports
        : part.flatMap(({ portEndpoint }): EndpointPort[] =>
            portEndpoint.port === undefined ? [] : [portEndpoint.port],
          ),
      hostname: endpoint.hostname,
      podName: endpoint.podName,
      nodeName: endpoint.nodeName,
      isOnNode,
      use: sample.use,
      conditions: endpoint.conditions,
      scopes: {
        internal: service.internalTrafficPolicy === "Local" ? sample.use.local : sample.use.cluster,
        external: service.externalTrafficPolicy === "Local" ? sample.use.local : sample.use.cluster,
      },
    };
    const identity = { podName: endpoint.podName, sliceName: slice.name, hasPodKey: slice.hasPodKeys, isWhole };
    return [{ ...item, key: endpointKey(item, service, identity) }];
  });
}

/** The use of each port endpoint (one port in one family), in the order of `portEndpoints`; undefined if unused. */
export type Uses = readonly (EndpointUse | undefined)[];

interface Used {
  readonly portEndpoint: PortEndpoint;
  readonly use: EndpointUse;
}

function isSameUse(a: EndpointUse, b: EndpointUse | undefined): boolean {
  return a.cluster === b?.cluster && a.local === b.local;
}

function onlyFamily(addresses: AddressSet, family: Family): AddressSet {
  return family === "v4" ? { v4: addresses.v4, v6: [] } : { v4: [], v6: addresses.v6 };
}
