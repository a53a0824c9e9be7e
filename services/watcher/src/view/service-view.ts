import { type AddressSet, type Family, families } from "@kpng/model/address.ts";
import type { Endpoint, EndpointPort, EndpointSlice } from "@kpng/model/endpoint.ts";
import type { EndpointUse, FamilyFlags, ServiceView, ViewEndpoint } from "@kpng/model/node-view.ts";
import { isExternallyAccessible, type Service, type ServicePort } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { endpointKey } from "@kpng/model/wire/endpoint-message.ts";
import { type Choice, type ChoosingNode, chooseEndpoints, isOnNode, type NeededSets } from "./choose-endpoints.ts";
import { type Facet, type FacetGroup, groupFacets } from "./merge-slices.ts";

/**
 * Returns what a node is told of one Service.
 *
 * Eligibility is decided per service port and family, as in kube-proxy: a pod that lacks a named port, or an IPv6 slice
 * that lags behind, must not decide for the others. An endpoint that is used in the same way for all of its ports and
 * families stays one item; otherwise each way becomes an item with the ports and addresses that are used that way.
 *
 * Pure; O(endpoints of the Service × ports).
 */
export function makeServiceView(service: Service, slices: readonly EndpointSlice[], node: ChoosingNode): ServiceView {
  const usesByEndpoint = new Map<Endpoint, Used[]>();
  const usableGroups = new Set<FacetGroup>();
  for (const { group, facets, choice, useOf } of chooseFacets(service, slices, node)) {
    if (choice.hasEndpoints) usableGroups.add(group);
    for (const facet of facets) {
      const use = useOf(facet);
      if (use === undefined) continue;
      const used = usesByEndpoint.get(facet.endpoint);
      if (used === undefined) usesByEndpoint.set(facet.endpoint, [{ facet, use }]);
      else used.push({ facet, use });
    }
  }
  const endpoints = new Map<string, ViewEndpoint>();
  for (const used of usesByEndpoint.values()) {
    for (const item of makeItems(service, used, node)) endpoints.set(item.key, item);
  }
  return {
    service,
    portHasEndpoints: service.ports.map((port) => flags((family) => hasEndpoints(usableGroups, family, port))),
    endpoints: [...endpoints.values()].sort((a, b) => compareText(a.key, b.key)),
  };
}

/** What a node does with the facets that answer for one service port in one family. */
export interface ChosenFacets {
  readonly group: FacetGroup;
  readonly facets: readonly Facet[];
  readonly choice: Choice<Facet>;
  /** How the node uses a facet; undefined if it is not told of it. */
  useOf(facet: Facet): EndpointUse | undefined;
}

/** Chooses among the facets of a Service, as the view of a node and whoever explains it need it. Pure. */
export function* chooseFacets(
  service: Service,
  slices: readonly EndpointSlice[],
  node: ChoosingNode,
): Iterable<ChosenFacets> {
  const needed = neededSets(service);
  for (const [group, facets] of groupFacets(slices)) {
    const choice = chooseEndpoints(facets, node, needed);
    const useOf = (facet: Facet): EndpointUse | undefined =>
      choice.uses.get(facet) ?? (mayHaveFlows(service, facet) ? forOldFlows : undefined);
    yield { group, facets, choice, useOf };
  }
}

/**
 * Which sets a Service needs; its cluster set also serves pods and the node itself that address it from inside by an
 * external address, whatever its external policy. A headless Service has no policy of its own and gives all.
 */
function neededSets(service: Service): NeededSets {
  return {
    cluster: service.internalTrafficPolicy === "Cluster" || isExternallyAccessible(service) || service.isHeadless,
    local: service.internalTrafficPolicy === "Local" || service.externalTrafficPolicy === "Local",
  };
}

/** In no set: nothing new is sent there. */
const forOldFlows: EndpointUse = { cluster: false, local: false };

/**
 * True for an endpoint that still answers UDP although it is in no set: it drains while others are ready, or hints lead
 * elsewhere. The node must know it to tell the flows that it still answers from those that go nowhere: only the latter
 * may be cut. Source: kube-proxy `conntrack/cleanup.go`, which keeps the flows of all serving endpoints.
 */
function mayHaveFlows(service: Service, { conditions, port }: Facet): boolean {
  const protocol = port?.protocol ?? service.ports.find(({ name }) => name === (port?.name ?? ""))?.protocol;
  return protocol === "UDP" && conditions.serving;
}

interface Used {
  readonly facet: Facet;
  readonly use: EndpointUse;
}

function makeItems(service: Service, used: readonly Used[], node: ChoosingNode): ViewEndpoint[] {
  const first = used[0];
  if (first === undefined) return [];
  const { endpoint, slice } = first.facet;
  const familyCount = families.filter((family) => endpoint.addresses[family].length > 0).length;
  const facetCount = familyCount * Math.max(1, endpoint.ports.length);
  const isWhole = used.length === facetCount && used.every(({ use }) => isSameUse(use, first.use));
  const parts = isWhole
    ? [used]
    : [...Map.groupBy(used, ({ facet, use }) => `${facet.family} ${use.cluster} ${use.local}`).values()];
  return parts.flatMap((part) => {
    const sample = part[0];
    if (sample === undefined) return [];
    const item = {
      addresses: isWhole ? endpoint.addresses : onlyFamily(endpoint.addresses, sample.facet.family),
      ports: isWhole
        ? endpoint.ports
        : part.flatMap(({ facet }): EndpointPort[] => (facet.port === undefined ? [] : [facet.port])),
      hostname: endpoint.hostname,
      podName: endpoint.podName,
      nodeName: endpoint.nodeName,
      isOnNode: isOnNode(endpoint, node),
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

function hasEndpoints(usable: ReadonlySet<FacetGroup>, family: Family, port: ServicePort): boolean {
  return (
    usable.has(`${family} ${port.protocol} ${port.name}`) ||
    usable.has(`${family}  ${port.name}`) ||
    // An endpoint that names no ports answers on the target port, which only an unnamed service port leads to.
    (port.name === "" && usable.has(family))
  );
}

function flags(holds: (family: Family) => boolean): FamilyFlags {
  return { v4: holds("v4"), v6: holds("v6") };
}

function isSameUse(a: EndpointUse, b: EndpointUse): boolean {
  return a.cluster === b.cluster && a.local === b.local;
}

function onlyFamily(addresses: AddressSet, family: Family): AddressSet {
  return family === "v4" ? { v4: addresses.v4, v6: [] } : { v4: [], v6: addresses.v6 };
}
