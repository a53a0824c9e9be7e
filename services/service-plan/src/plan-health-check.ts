import type { Family } from "@kpng/model/address.ts";
import type { ViewEndpoint } from "@kpng/model/node-view.ts";
import type { Service } from "@kpng/model/service.ts";
import { isPortNumber, isServed } from "./served.ts";
import type { HealthCheckPlan } from "./service-plan.ts";

/**
 * Returns the health check of a load balancer with external policy Local; undefined for every other Service. A load
 * balancer asks this port which nodes have endpoints. `planService` calls it. Separate from it, because `wantedChecks`
 * of backend-kit calls it too, and needs no other part of a plan.
 *
 * Endpoints that terminate do not count although traffic may still reach them: that is how a node drains.
 *
 * *Source:* kube-proxy `endpointschangetracker.go`, LocalReadyEndpoints; `serviceport.go`, HealthCheckNodePort.
 *
 * Pure; O(endpoints) for a Service that has one, else O(1).
 */
export function planHealthCheck(
  service: Service,
  endpoints: readonly ViewEndpoint[],
  family: Family,
): HealthCheckPlan | undefined {
  const { type, externalTrafficPolicy, healthCheckNodePort: port } = service;
  if (!isPortNumber(port) || type !== "LoadBalancer" || externalTrafficPolicy !== "Local") return undefined;
  if (!isServed(service, family)) return undefined;
  const local = endpoints.filter(({ isOnNode, conditions }) => isOnNode && conditions.ready);
  return { port, localEndpoints: new Set(local.flatMap(({ addresses }) => addresses[family].slice(0, 1))).size };
}
