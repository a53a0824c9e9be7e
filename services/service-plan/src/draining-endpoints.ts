import type { Family } from "@kpng/model/address.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import { makeEndpointSets } from "./endpoint-sets.ts";
import type { EndpointAddress, ServicePortPlan } from "./service-plan.ts";

/**
 * Returns the endpoints that may still answer UDP flows which began earlier, whether or not new flows use them. As in
 * the conntrack table, a flow stays at an endpoint that terminates or that a policy no longer chooses. Returns nothing
 * for other protocols, whose connections tell by themselves when they end.
 *
 * The backends ipvs and userspace call it when they render a Service. Not part of the plan (`planService`),
 * because the backends that leave flows to conntrack do not need these endpoints.
 *
 * Pure; O(endpoints).
 */
export function drainingEndpoints(
  view: ServiceView | undefined,
  { protocol, port }: ServicePortPlan,
  family: Family,
): readonly EndpointAddress[] {
  const servicePort = view?.service.ports.find((one) => one.protocol === protocol && one.port === port);
  if (view === undefined || servicePort === undefined || protocol !== "UDP") return [];
  const serving = view.endpoints
    .filter(({ conditions }) => conditions.serving || conditions.ready)
    .map((endpoint) => ({ ...endpoint, use: { cluster: true, local: false } }));
  return makeEndpointSets(serving, servicePort, family).cluster;
}
