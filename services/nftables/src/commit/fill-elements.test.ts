import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { endpoint, service } from "@kpng/model/testing/views.ts";
import { FrontendClaims } from "@kpng/service-plan/frontend-claims.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { expect, test } from "vitest";
import { ServiceElements } from "../elements/service-elements.ts";
import { addressBytes, type ElementBytes, numberBytes, readNumber } from "../layout/element-keys.ts";
import { packed, unpackSet } from "../layout/packed-set.ts";
import { sharedSets } from "../layout/set-names.ts";
import { type ActualElements, noElements } from "../read/read-table.ts";
import { divideSteps } from "./divide-steps.ts";
import { fillElements } from "./fill-elements.ts";

type Kernel = Map<string, Map<ElementBytes, ElementBytes>>;

const node = nodePlan();
const table = { family: "v4", name: "kpng" } as const;
const ports = [{ name: "", port: 8080 }];
const endpoints = (net: number, count: number) =>
  Array.from({ length: count }, (_, at) => endpoint(`10.${net}.0.${at + 1}`, { ports }));
const web = service("a/web", { ips: ["10.96.0.1"], endpoints: endpoints(1, 5) });
const bank = { ips: ["10.96.0.2"], endpoints: endpoints(2, 5) };
const rival = service("c/rival", { ips: ["10.96.0.3"], endpoints: endpoints(66, 60) });

function planOf(services: readonly ReturnType<typeof service>[]): FamilyPlan {
  const plans = new Map(services.map((each) => [serviceKey(each.service), planService(each, node)]));
  const claims = new FrontendClaims();
  for (const plan of plans.values()) claims.put(plan);
  return { node, keys: () => plans.keys(), service: (key) => plans.get(key) };
}

const actualOf = (kernel: Kernel): ActualElements => ({ ...noElements, ...Object.fromEntries(kernel) });

/** Returns the slots that a frontend without affinity leads to. */
function slotsOf(kernel: Kernel, address: string): readonly ElementBytes[] {
  const frontends = [...(kernel.get("frontends") ?? [])].filter(([key]) => key.startsWith(addressBytes(address)));
  return frontends.flatMap(([, value]) => {
    const { id, count } = unpackSet(readNumber(value));
    const slot = (at: number) => kernel.get("slots")?.get(numberBytes(id * (packed.countMask + 1)) + numberBytes(at));
    return Array.from({ length: count }, (_, at) => slot(at) ?? "");
  });
}

test.each([
  { name: "was deleted", after: [] },
  { name: "lost its endpoints", after: [service("b/bank", { ...bank, endpoints: [] })] },
  { name: "gained affinity", after: [service("b/bank", { ...bank, clientIPAffinitySeconds: 100 })] },
])(
  "no part of a divided change leads clients of a Service that $name before the restart to a new Service",
  async ({ after }) => {
    const earlier = new ServiceElements(table, 100);
    await fillElements(earlier, planOf([web, service("b/bank", bank)]), noElements);
    const kernel: Kernel = new Map(sharedSets.map((set) => [set, new Map(earlier.table.elements(set))]));
    const elements = new ServiceElements(table, 100);
    await fillElements(elements, planOf([web, ...after, rival]), actualOf(kernel));
    await elements.table.compareWith(actualOf(kernel));
    const parts = [...divideSteps(elements.table.changes(), 2_500)];
    expect(parts.length).toBeGreaterThan(1);
    for (const step of parts.flat()) {
      if (step.kind === "chain") continue;
      for (const { key, data } of step.elements) {
        const of = kernel.get(step.set);
        if (step.kind === "delete") of?.delete(key);
        else of?.set(key, data === undefined ? "" : data.kind === "value" ? data.bytes : data.chain);
      }
      const foreign = slotsOf(kernel, "10.96.0.2").filter((slot) =>
        slot.startsWith(addressBytes("10.66.0.0").slice(0, 2)),
      );
      expect(foreign).toEqual([]);
    }
  },
);
