import type { Family } from "@kpng/model/address.ts";
import { planNode } from "@kpng/service-plan/plan-node.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import { onRandomStates, type RandomState, randomState } from "@kpng/service-plan/testing/random-views.ts";
import { expect, test } from "vitest";
import type { ElementTable } from "../elements/element-table.ts";
import { ServiceElements } from "../elements/service-elements.ts";
import { numberBytes, readNumber, recordKey } from "../layout/element-keys.ts";
import { packed, unpackSet } from "../layout/packed-set.ts";
import { sharedSets } from "../layout/set-names.ts";
import { type BatchStep, encodeBatch } from "../netlink/element-batch.ts";
import { divideSteps } from "./divide-steps.ts";

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
    for (const { key, data, comment } of step.elements) {
      if (step.kind === "delete") expect(elements.delete(key)).toBe(true);
      else {
        expect(elements.has(key)).toBe(false);
        const value = data === undefined ? undefined : data.kind === "value" ? data.bytes : data.chain;
        elements.set(key, value ?? (step.set === "record" ? (comment ?? "") : ""));
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
    elements.table.put("record", recordKey, "before");
    elements.table.committed();
    const [kernel, before] = [copyOf(elements.table), copyOf(elements.table)];
    put(elements, state, family);
    elements.table.put("record", recordKey, "after");
    const after = copyOf(elements.table);
    const limit = 2_500;
    const steps = elements.table.changes();
    for (const part of divideSteps(steps, limit)) {
      expect(encodeBatch({ family, name: "kpng" }, part).bytes.length).toBeLessThan(limit);
      apply(kernel, part);
      const isDone = kernel.get("record")?.get(recordKey) === "after";
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
      if (isDone) expect(kernel).toEqual(after);
      else expect(kernel.get("record")?.get(recordKey)).toBeUndefined();
    }
    expect(kernel).toEqual(after);
  });
});

test("what fits stays one transaction, as it is", () => {
  const steps = [{ set: "frontends", kind: "put", elements: [{ key: "key" }] }] as const;
  expect([...divideSteps(steps, 10_000)]).toEqual([steps]);
  expect([...divideSteps([], 10_000)]).toEqual([]);
});
