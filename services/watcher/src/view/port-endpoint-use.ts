import type { EndpointUse } from "@kpng/model/node-view.ts";
import { isExternallyAccessible, type Service } from "@kpng/model/service.ts";
import type { NeededSets } from "./choose-endpoints.ts";
import type { PortEndpoint } from "./merge-slices.ts";

/**
 * Returns the endpoint sets that a Service needs: "cluster" has the endpoints that any node uses, "local" those on the
 * node itself.
 *
 * Pods and the node itself may address a Service by an external address; they use set "cluster" whatever the external
 * policy is. A headless Service has no traffic policy, and its view contains all endpoints.
 *
 * `makeServiceView` and `ClassChoice` mark each endpoint with the sets that contain it. Separate from both, because
 * they need the same answer.
 */
export function neededSets(service: Service): NeededSets {
  return {
    cluster: service.internalTrafficPolicy === "Cluster" || isExternallyAccessible(service) || service.isHeadless,
    local: service.internalTrafficPolicy === "Local" || service.externalTrafficPolicy === "Local",
  };
}

/** In neither set: new connections do not go there. */
const forOldFlows: EndpointUse = { cluster: false, local: false };

/**
 * Returns the use of a port endpoint that is in neither set; undefined if no view contains it. Called in the same
 * places.
 *
 * A UDP endpoint may still serve existing flows although it is in neither set: it drains while others are ready, or
 * hints lead to others. Views contain it so that the node deletes only the conntrack entries of endpoints that are
 * gone.
 *
 * Source: kube-proxy `conntrack/cleanup.go`, which keeps the flows of all serving endpoints.
 */
export function useInNoSet(service: Service, { conditions, port }: PortEndpoint): EndpointUse | undefined {
  const protocol = port?.protocol ?? service.ports.find(({ name }) => name === (port?.name ?? ""))?.protocol;
  return protocol === "UDP" && conditions.serving ? forOldFlows : undefined;
}
