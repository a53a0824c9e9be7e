import type { NodeView } from "@kpng/model/node-view.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import type { FamilyPlan } from "../proxy/rule-set.ts";

/**
 * Returns the plan of a view without `FamilyPlanner`, for tests that render iptables rules. No two Services may have
 * the same frontend (address, port and protocol).
 */
export function familyPlan(view: NodeView, node: NodePlan): FamilyPlan {
  return {
    node,
    keys: () => view.services.keys(),
    view: (key) => view.services.get(key),
    service: (key) => {
      const service = view.services.get(key);
      return service === undefined ? undefined : planService(service, node);
    },
  };
}
