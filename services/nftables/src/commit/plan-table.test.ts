import { familyPlan } from "@kpng/backend-kit/testing/family-plans.ts";
import { numberBytes, readNumber } from "@kpng/model/byte-text.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import { endpoint, service, view } from "@kpng/model/testing/views.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { onRandomStates, randomState } from "@kpng/service-plan/testing/random-views.ts";
import { expect, test } from "vitest";
import { addressBytes, packed, sharedSets, unpackSet } from "../layout/elements.ts";
import { type BatchStep, encodeBatch } from "../netlink/transaction.ts";
import { type InstalledElements, noElements } from "../read/read-table.ts";
import type { ElementTable } from "../render/element-table.ts";
import { ServiceElements } from "../render/service-elements.ts";
import { putState } from "../testing/plans.ts";
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

const table = { family: "v4", name: "kpng" } as const;
const ports = [{ name: "", port: 8080 }];
const endpoints = (net: number, count: number) =>
  Array.from({ length: count }, (_, at) => endpoint(`10.${net}.0.${at + 1}`, { ports }));
const web = service("a/web", { ips: ["10.96.0.1"], endpoints: endpoints(1, 5) });
const bank = { ips: ["10.96.0.2"], endpoints: endpoints(2, 5) };
const rival = service("c/rival", { ips: ["10.96.0.3"], endpoints: endpoints(66, 60) });

const planOf = (services: readonly ServiceView[]) => familyPlan(view(services), nodePlan());
const installedOf = (kernel: Sets): InstalledElements => ({ ...noElements, ...Object.fromEntries(kernel) });

type Sets = Map<string, Map<string, string>>;

const copyOf = (table: ElementTable): Sets => new Map(sharedSets.map((set) => [set, new Map(table.elements(set))]));

/** Does what the kernel does with a transaction, with its errors. */
function apply(sets: Sets, part: readonly BatchStep[]): void {
  for (const step of part) {
    if (step.kind === "chain") continue;
    const elements = sets.get(step.set) ?? new Map<string, string>();
    for (const { key, value = "" } of step.elements) {
      if (step.kind === "delete") expect(elements.delete(key)).toBe(true);
      else {
        expect(elements.has(key)).toBe(false);
        elements.set(key, value);
      }
    }
  }
}

/** Returns the endpoints that packets find in a set without affinity; undefined for those that find none. */
function endpointsOf(sets: Sets, { id, count }: { readonly id: number; readonly count: number }) {
  const slot = (at: number) => sets.get("slots")?.get(numberBytes(id * (packed.countMask + 1)) + numberBytes(at));
  return Array.from({ length: count }, (_, at) => slot(at) ?? slot(0));
}

/** Returns the slots that a frontend without affinity leads to. */
function slotsOf(kernel: Sets, address: string): readonly (string | undefined)[] {
  const frontends = [...(kernel.get("frontends") ?? [])].filter(([key]) => key.startsWith(addressBytes(address)));
  return frontends.flatMap(([, value]) => endpointsOf(kernel, unpackSet(readNumber(value))));
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
    const kernel = copyOf(earlier.table);
    const elements = new ServiceElements(table, 100);
    await fillElements(elements, planOf([web, ...after, rival]), installedOf(kernel));
    await elements.table.compareWith(installedOf(kernel));
    const parts = [...divideSteps(elements.table.changes(), 2_500)];
    expect(parts.length).toBeGreaterThan(1);
    for (const step of parts.flat()) {
      apply(kernel, [step]);
      const foreign = slotsOf(kernel, "10.96.0.2").filter((slot) =>
        slot?.startsWith(addressBytes("10.66.0.0").slice(0, 2)),
      );
      expect(foreign).toEqual([]);
    }
  },
);

test("every part fits, and in between each frontend leads to old or new endpoints of its old or its new set", () => {
  onRandomStates(60, (state, family) => {
    const elements = new ServiceElements({ family, name: "kpng" }, 100);
    putState(elements, randomState(1), family);
    elements.table.committed();
    const [kernel, before] = [copyOf(elements.table), copyOf(elements.table)];
    putState(elements, state, family);
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
