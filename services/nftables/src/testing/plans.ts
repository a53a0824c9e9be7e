import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Route, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { nodePlanOf, plansOf, type RandomState } from "@kpng/service-plan/testing/random-views.ts";
import type { ServiceElements } from "../render/service-elements.ts";

/** Makes the Services of a state the only ones of the elements. */
export function putState(elements: ServiceElements, state: RandomState, family: Family): void {
  const { services } = state.view;
  for (const key of elements.services) if (!services.has(key)) elements.put(key, undefined);
  for (const plan of plansOf(state, nodePlanOf(state, family))) elements.put(plan.key, plan);
}

/** A plan of Services whose number of endpoints a test changes. */
export class ChangingPlan implements FamilyPlan {
  readonly node: FamilyPlan["node"];
  readonly #family: Family;
  readonly #endpoints = new Map<ServiceKey, number>();

  constructor(family: Family) {
    this.#family = family;
    this.node = nodePlan({ family });
  }

  keys(): Iterable<ServiceKey> {
    return this.#endpoints.keys();
  }

  /** 0 deletes the Service. */
  set(key: ServiceKey, endpoints: number): void {
    if (endpoints === 0) this.#endpoints.delete(key);
    else this.#endpoints.set(key, endpoints);
  }

  /** Two ports; the second has affinity and source ranges in Services called `sticky`. */
  service(key: ServiceKey): ServicePlan | undefined {
    const count = this.#endpoints.get(key);
    if (count === undefined) return undefined;
    const number = Number(/\d+$/.exec(key)?.[0] ?? 0);
    const [high, low] = [Math.floor(number / 250), 1 + (number % 250)];
    const isV6 = this.#family === "v6";
    const address = isV6 ? `fd00:96:${high}::${low}` : `10.96.${high}.${low}`;
    const isSticky = key.includes("sticky");
    const masqueraded: Route = { kind: "balance", set: "cluster", isMasqueraded: true };
    const routes = { pod: { ...masqueraded, isMasqueraded: false }, node: masqueraded, outside: masqueraded };
    const ranges = [isV6 ? "2001:db8::/32" : "192.0.2.0/24"];
    return {
      key,
      family: this.#family,
      hairpin: [],
      healthCheck: undefined,
      ports: [80, 443].map((port) => ({
        name: `${key}:p${port}`,
        protocol: "TCP",
        port,
        affinitySeconds: isSticky && port === 443 ? 100 : undefined,
        sets: {
          cluster: Array.from({ length: count }, (_, at) => ({
            address: isV6 ? `fd00:10:${number}::${at + 1}` : `10.${1 + high}.${low}.${at + 1}`,
            port: port + 8000,
          })),
          local: [],
        },
        frontends: [
          {
            ...({ kind: "loadBalancerIP", address, protocol: "TCP", port, routes } as const),
            sources: isSticky && port === 443 ? { ranges, ownAddresses: [] } : undefined,
          },
        ],
      })),
    };
  }
}
