import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Route, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";

/** Plan of Services with numbers, for programs that write maps without a watcher. All are TCP, IPv4, at port 80. */
export class RacePlan implements FamilyPlan {
  readonly node = nodePlan();
  readonly #services = new Map<ServiceKey, ServicePlan>();

  keys(): Iterable<ServiceKey> {
    return this.#services.keys();
  }

  service(key: ServiceKey): ServicePlan | undefined {
    return this.#services.get(key);
  }

  clear(): void {
    this.#services.clear();
  }

  /**
   * Address of a Service, whose last byte no endpoint has: 10.96.0.<200 + number>, and from number 1 000 on
   * 10.97.0.<number - 1 000>. Its key is `race/<number>`.
   */
  static address(number: number): string {
    return number < 1_000 ? `10.96.0.${200 + number}` : `10.97.0.${number - 1_000}`;
  }

  /** Adds or changes a Service with the endpoints 10.200.0.<endpoint>; without endpoints, it refuses. */
  put(number: number, endpoints: readonly number[]): void {
    const cluster = endpoints.map((endpoint) => ({ address: `10.200.0.${endpoint}`, port: 8_000 + endpoint }));
    const route: Route =
      endpoints.length === 0 ? { kind: "refuse" } : { kind: "balance", set: "cluster", isMasqueraded: false };
    const frontend = { kind: "clusterIP", address: RacePlan.address(number), port: 80, protocol: "TCP" } as const;
    const port = { name: `race/${number}`, protocol: "TCP", port: 80, affinitySeconds: undefined } as const;
    const routes = { pod: route, node: route, outside: route };
    this.#services.set(`race/${number}`, {
      ...{ key: `race/${number}`, family: "v4", hairpin: [], healthCheck: undefined },
      ports: [{ ...port, sets: { cluster, local: [] }, frontends: [{ ...frontend, sources: undefined, routes }] }],
    });
  }

  delete(number: number): void {
    this.#services.delete(`race/${number}`);
  }
}
