import { expect, test } from "vitest";
import { ServiceElements } from "../render/service-elements.ts";
import { ChangingPlan } from "../testing/plans.ts";
import { listRules } from "./format-rules.ts";

function fill(services: Readonly<Record<`${string}/${string}`, number>>) {
  const plan = new ChangingPlan("v4");
  const elements = new ServiceElements({ family: "v4", name: "kpng" }, 1_000);
  for (const [key, endpoints] of Object.entries(services) as [`${string}/${string}`, number][]) {
    plan.set(key, endpoints);
    elements.put(key, plan.service(key));
  }
  return listRules("v4", () => elements);
}

test("the rules of one Service are its frontends and the slots of its endpoints, and none of another Service", () => {
  const rules = fill({ "ns/web-1": 2, "ns/web-12": 3 });
  expect(rules.linesOf?.("ns/web-1")).toEqual([
    "frontends { 10.96.0.2 . tcp . 443 : 4000:4002 } # ns/web-1:p443: endpoints at 0:4000, 2 of them, masqueraded unless a pod sends",
    "frontends { 10.96.0.2 . tcp . 80 : 4000:2002 } # ns/web-1:p80: endpoints at 0:2000, 2 of them, masqueraded unless a pod sends",
    "slots { 0:2000 . 0 : 10.1.2.1 . 8080 } # ns/web-1:p80 TCP cluster",
    "slots { 0:2000 . 1 : 10.1.2.2 . 8080 } # ns/web-1:p80 TCP cluster",
    "slots { 0:4000 . 0 : 10.1.2.1 . 8443 } # ns/web-1:p443 TCP cluster",
    "slots { 0:4000 . 1 : 10.1.2.2 . 8443 } # ns/web-1:p443 TCP cluster",
  ]);
  expect(rules.lines()).toHaveLength(2 * 3 + 2 * 4);
  expect(rules.count()).toBe(rules.lines().length);
  expect(rules.linesOf?.("ns/missing")).toEqual([]);
});

test("the rules of a Service with affinity and source ranges include its chains and the ids of its endpoints", () => {
  const rules = fill({ "ns/sticky-2": 2 });
  const lines = rules.linesOf?.("ns/sticky-2") ?? [];
  const kinds = new Set(lines.map((line) => /^[a-z_]+?(?=_[0-9a-f]{16}| )/.exec(line)?.[0]));
  const ofAffinity = ["sticky", "sticky_addresses", "sticky_counts", "sticky_sets", "sticky_slots"];
  expect([...kinds].sort()).toEqual(["firewall", "frontends", "ranges", "slots", ...ofAffinity]);
  expect(lines.filter((line) => line.startsWith("sticky_addresses"))).toHaveLength(2);
  expect(lines.every((line) => line.includes(" # ns/sticky-2"))).toBe(true);
  expect(rules.count()).toBe(lines.length);
});
