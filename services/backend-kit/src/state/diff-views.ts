import type { NodeView, ServiceItem, ServiceView, ViewChange, ViewEndpoint } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { sameValue } from "./same-value.ts";

/**
 * Returns the fewest changes that lead from one view of a node to another. `ViewState` and the sync loop use it to give
 * backends only real differences. `diffFromSaved` calls it after a start from disk. Separate from `ViewState`, which
 * keeps state, because it is pure.
 *
 * The order is node, Services put, endpoints put, endpoints deleted, Services deleted. So an endpoint always has its
 * Service, and a Service keeps an endpoint while its only one is replaced.
 *
 * `touched` names the Services that may differ; the others are not compared.
 *
 * Pure; O(endpoints of the touched Services).
 */
export function diffViews(from: NodeView, to: NodeView, touched: Iterable<ServiceKey>): readonly ViewChange[] {
  const changes: ChangeGroups = { servicePuts: [], endpointPuts: [], endpointDeletes: [], serviceDeletes: [] };
  for (const key of [...touched].sort(compareText)) {
    diffService(key, from.services.get(key), to.services.get(key), changes);
  }
  return [
    ...diffNode(from, to),
    ...changes.servicePuts,
    ...changes.endpointPuts,
    ...changes.endpointDeletes,
    ...changes.serviceDeletes,
  ];
}

interface ChangeGroups {
  readonly servicePuts: ViewChange[];
  readonly endpointPuts: ViewChange[];
  readonly endpointDeletes: ViewChange[];
  readonly serviceDeletes: ViewChange[];
}

function diffNode(from: NodeView, to: NodeView): readonly ViewChange[] {
  if (sameValue(from.node, to.node)) return [];
  return [to.node === undefined ? { kind: "delete-node" } : { kind: "put-node", node: to.node }];
}

function diffService(
  key: ServiceKey,
  from: ServiceView | undefined,
  to: ServiceView | undefined,
  changes: ChangeGroups,
): void {
  if (from === to) return;
  if (to !== undefined && !sameItem(from, to)) {
    changes.servicePuts.push({ kind: "put-service", key, item: itemOf(to) });
  }
  const before = byKey(from);
  const after = byKey(to);
  for (const endpoint of after.values()) {
    if (!sameValue(before.get(endpoint.key), endpoint)) {
      changes.endpointPuts.push({ kind: "put-endpoint", service: key, endpoint });
    }
  }
  for (const endpoint of before.values()) {
    if (!after.has(endpoint.key)) {
      changes.endpointDeletes.push({ kind: "delete-endpoint", service: key, key: endpoint.key });
    }
  }
  if (to === undefined) changes.serviceDeletes.push({ kind: "delete-service", key });
}

/** Returns true if the Services are equal, whatever their endpoints. */
export function sameItem(a: ServiceItem | undefined, b: ServiceItem | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return sameValue(a.service, b.service) && sameValue(a.portHasEndpoints, b.portHasEndpoints);
}

function itemOf({ service, portHasEndpoints }: ServiceView): ServiceItem {
  return portHasEndpoints === undefined ? { service } : { service, portHasEndpoints };
}

function byKey(view: ServiceView | undefined): ReadonlyMap<string, ViewEndpoint> {
  return new Map(view?.endpoints.map((endpoint) => [endpoint.key, endpoint]));
}
