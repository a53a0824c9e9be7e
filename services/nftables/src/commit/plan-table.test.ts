import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { Family } from "@kpng/model/address.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { endpoint, service } from "@kpng/model/testing/views.ts";
import { FrontendClaims } from "@kpng/service-plan/frontend-claims.ts";
import { planNode } from "@kpng/service-plan/plan-node.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { onRandomStates, type RandomState, randomState } from "@kpng/service-plan/testing/random-views.ts";
import { expect, test } from "vitest";
import {
  addressBytes,
  type ElementBytes,
  numberBytes,
  packed,
  readNumber,
  sharedSets,
  unpackSet,
} from "../layout/elements.ts";
import { type BatchStep, encodeBatch } from "../netlink/transaction.ts";
import { type InstalledElements, noElements } from "../read/read-table.ts";
import type { ElementTable } from "../render/element-table.ts";
import { ServiceElements } from "../render/service-elements.ts";
import { divideSteps, fillElements, planInstall } from "./plan-table.ts";

const frame = {
  skeleton: "add chain ip kpng services\nflush chain ip kpng services\n",
  hooks:
    "add chain ip kpng nat_prerouting { type nat hook prerouting priority -100; }\nflush chain ip kpng nat_prerouting\n",
};

test("a full sync empties the base chains before it deletes chains of others, to which rules there may lead", async () => {
  const objects = {
    chains: ["services", "nat_prerouting", "pick_2", "foreign"],
    hooks: new Map([["nat_prerouting", "type nat hook prerouting priority -100;"]]),
    sets: [
      { kind: "map", name: "frontends" },
      { kind: "map", name: "foreign_map" },
    ],
  } as const;
  const elements = new ServiceElements({ family: "v4", name: "kpng" }, 1_000);
  const { last } = await planInstall(elements, { objects, elements: noElements }, frame);
  expect(last).toBe(
    `${frame.hooks}flush chain ip kpng foreign\ndelete map ip kpng foreign_map\ndelete chain ip kpng foreign\n`,
  );
});

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

const installedOf = (kernel: Kernel): InstalledElements => ({ ...noElements, ...Object.fromEntries(kernel) });

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
    await fillElements(elements, planOf([web, ...after, rival]), installedOf(kernel));
    await elements.table.compareWith(installedOf(kernel));
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

type Sets = Map<string, Map<string, string>>;

function put(elements: ServiceElements, { view, settings, localAddresses }: RandomState, family: Family): void {
  const node = planNode(settings, family, { node: view.node, localAddresses });
  for (const key of elements.services) if (!view.services.has(key)) elements.put(key, undefined);
  for (const service of view.services.values()) {
    elements.put(`${service.service.namespace}/${service.service.name}`, planService(service, node));
  }
}

const copyOf = (table: ElementTable): Sets => new Map(sharedSets.map((set) => [set, new Map(table.elements(set))]));

/** Does what the kernel does with a transaction, with its errors. */
function apply(sets: Sets, part: readonly BatchStep[]): void {
  for (const step of part) {
    if (step.kind === "chain") continue;
    const elements = sets.get(step.set) ?? new Map<string, string>();
    for (const { key, data } of step.elements) {
      if (step.kind === "delete") expect(elements.delete(key)).toBe(true);
      else {
        expect(elements.has(key)).toBe(false);
        const value = data === undefined ? undefined : data.kind === "value" ? data.bytes : data.chain;
        elements.set(key, value ?? "");
      }
    }
  }
}

/** Returns the endpoints that packets find in a set without affinity; undefined for those that find none. */
function endpointsOf(sets: Sets, { id, count }: { readonly id: number; readonly count: number }) {
  const slot = (at: number) => sets.get("slots")?.get(numberBytes(id * (packed.countMask + 1)) + numberBytes(at));
  return Array.from({ length: count }, (_, at) => slot(at) ?? slot(0));
}

test("every part fits, and in between each frontend leads to old or new endpoints of its old or its new set", () => {
  onRandomStates(60, (state, family) => {
    const elements = new ServiceElements({ family, name: "kpng" }, 100);
    put(elements, randomState(1), family);
    elements.table.committed();
    const [kernel, before] = [copyOf(elements.table), copyOf(elements.table)];
    put(elements, state, family);
    const after = copyOf(elements.table);
    const limit = 2_500;
    const steps = elements.table.changes();
    for (const part of divideSteps(steps, limit)) {
      expect(encodeBatch({ family, name: "kpng" }, part).bytes.length).toBeLessThan(limit);
      apply(kernel, part);
      for (const map of ["frontends", "nodeports"] as const) {
        for (const [frontend, value] of kernel.get(map) ?? []) {
          const [setBefore, set, setAfter] = [before.get(map)?.get(frontend), value, after.get(map)?.get(frontend)].map(
            (one) => unpackSet(readNumber(one ?? value)),
          );
          if (set === undefined || set.count === 0) continue;
          expect([setBefore?.id, setAfter?.id]).toContain(set.id);
          const most = { id: set.id, count: 64 };
          const right = new Set([before, after].flatMap((sets) => endpointsOf(sets, most)));
          right.delete(undefined);
          for (const endpoint of endpointsOf(kernel, set)) expect(right.has(endpoint)).toBe(true);
        }
        for (const frontend of before.get(map)?.keys() ?? [])
          if (after.get(map)?.has(frontend) === true) expect(kernel.get(map)?.has(frontend)).toBe(true);
      }
    }
    expect(kernel).toEqual(after);
  });
});

test("what fits stays one transaction, as it is", () => {
  const steps = [{ set: "frontends", kind: "put", elements: [{ key: "key" }] }] as const;
  expect([...divideSteps(steps, 10_000)]).toEqual([steps]);
  expect([...divideSteps([], 10_000)]).toEqual([]);
});
