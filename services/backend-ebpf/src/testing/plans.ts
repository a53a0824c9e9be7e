import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Frontend, Route, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";

/** Routes to all endpoints, of pods without masquerade. */
const masqueraded: Route = { kind: "balance", set: "cluster", isMasqueraded: true };
const routes = { pod: { ...masqueraded, isMasqueraded: false }, node: masqueraded, outside: masqueraded };

/** Returns a frontend with only the fields that a test is about. Default: a cluster IP. */
export function frontend(parts: Partial<Frontend> = {}): Frontend {
  const place = { kind: "clusterIP", address: "10.96.0.1", protocol: "TCP", port: 80 } as const;
  return { ...place, sources: undefined, routes, ...parts };
}

/** Returns the plan of a Service with one TCP port and these endpoints. */
export function servicePlan(
  key: ServiceKey,
  frontends: readonly Frontend[],
  endpoints: readonly string[] = ["10.1.1.1"],
): ServicePlan {
  const cluster = endpoints.map((address) => ({ address, port: 8080 }));
  const port = { name: key, protocol: "TCP", port: 80, affinitySeconds: undefined } as const;
  const ports = [{ ...port, sets: { cluster, local: [] }, frontends }];
  return { key, family: "v4", ports, hairpin: [], healthCheck: undefined };
}

/** Returns a plan of these Services. */
export function familyPlan(services: readonly ServicePlan[]): FamilyPlan {
  const plans = new Map(services.map((plan) => [plan.key, plan]));
  return { node: nodePlan({ family: "v4" }), keys: () => plans.keys(), service: (key) => plans.get(key) };
}
