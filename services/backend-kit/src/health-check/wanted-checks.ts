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
 * Returns the health checks that one Service requires, at most one for each family; none for a Service that does not
 * exist. `HealthCheckServers` calls it. Pure; O(endpoints) with a health-check node port. Separate from the servers,
 * because it opens no port.
 */
export function wantedChecks(view: NodeView, key: ServiceKey): readonly WantedCheck[] {
  const found = view.services.get(key);
  if (found === undefined) return [];
  const { service, endpoints } = found;
  return families.flatMap((family) => {
    const check = planHealthCheck(service, endpoints, family);
    if (check === undefined) return [];
    return { service: key, namespace: service.namespace, name: service.name, family, ...check };
  });
}
