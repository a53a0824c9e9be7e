import type { EndpointUse } from "@kpng/model/node-view.ts";
import { isExternallyAccessible, type Service } from "@kpng/model/service.ts";
import type { NeededSets } from "./choose-endpoints.ts";
import type { PortEndpoint } from "./merge-slices.ts";

/**
 * Which sets a Service needs; its cluster set also serves pods and the node itself that address it from inside by an
 * external address, whatever its external policy. A headless Service has no policy of its own and gives all.
 */
export function neededSets(service: Service): NeededSets {
  return {
    cluster: service.internalTrafficPolicy === "Cluster" || isExternallyAccessible(service) || service.isHeadless,
    local: service.internalTrafficPolicy === "Local" || service.externalTrafficPolicy === "Local",
  };
}

/** In no set: nothing new is sent there. */
const forOldFlows: EndpointUse = { cluster: false, local: false };

/**
 * How a facet that is in no set is used, or undefined if nobody is told of it.
 *
 * An endpoint may still answer UDP although it is in no set: it drains while others are ready, or hints lead elsewhere.
 * The node must know it to tell the flows that it still answers from those that go nowhere: only the latter may be cut.
 * Source: kube-proxy `conntrack/cleanup.go`, which keeps the flows of all serving endpoints.
 */
export function useInNoSet(service: Service, { conditions, port }: PortEndpoint): EndpointUse | undefined {
  const protocol = port?.protocol ?? service.ports.find(({ name }) => name === (port?.name ?? ""))?.protocol;
  return protocol === "UDP" && conditions.serving ? forOldFlows : undefined;
}
