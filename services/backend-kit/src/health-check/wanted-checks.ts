import { type Family, families } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { planHealthCheck } from "@kpng/service-plan/plan-health-check.ts";
import type { HealthCheckPlan } from "@kpng/service-plan/service-plan.ts";

/** Health check that this node must answer, for one Service and one IP family. */
export interface WantedCheck extends HealthCheckPlan {
  readonly service: ServiceKey;
  readonly namespace: string;
  readonly name: string;
  readonly family: Family;
}

/**
 * Returns the health checks that a view requires, for `HealthCheckServers`. Pure; O(Services + endpoints of Services
 * with a health-check node port). Separate from the servers, because it opens no port.
 */
export function wantedChecks(view: NodeView): readonly WantedCheck[] {
  return [...view.services].flatMap(([key, { service, endpoints }]) =>
    families.flatMap((family) => {
      const check = planHealthCheck(service, endpoints, family);
      if (check === undefined) return [];
      return { service: key, namespace: service.namespace, name: service.name, family, ...check };
    }),
  );
}
