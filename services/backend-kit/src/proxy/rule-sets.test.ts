import type { ServiceView } from "@kpng/model/node-view.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { endpoint, port, type ServiceParts, service, view } from "@kpng/model/testing/views.ts";
import { planNode } from "@kpng/service-plan/plan-node.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { RecentAddresses } from "../node-addresses/local-addresses.ts";
import { MemoryRuleSet } from "../testing/memory-rule-set.ts";
import { createReadableLog } from "../testing/steps.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";
import { readProxySettings } from "./proxy-settings.ts";
import type { RuleChange } from "./rule-set.ts";
import { type FamilyOutcome, RuleSets } from "./rule-sets.ts";

const ready = { endpoints: [endpoint("10.0.1.1", { ports: [{ name: "", port: 80 }] })] };
const stages = { committing: () => undefined };

/** Rules of both families in memory; `sync` returns the clashes that it logs. */
function start(options: ParsedOptions = {}) {
  const { log, lines } = createReadableLog();
  const ruleSets = [new MemoryRuleSet("v4"), new MemoryRuleSet("v6")] as const;
  const outcomes: FamilyOutcome[] = [];
  const registry = new Registry();
  const addresses = { v4: ["192.168.0.2"], v6: [] };
  const rules = new RuleSets({
    settings: readProxySettings(options, true),
    ruleSets,
    onOutcome: (outcome) => outcomes.push(outcome),
    log,
    metrics: registry,
    localAddresses: () => ({ ...addresses }),
  });
  const sync = async (...services: readonly ServiceView[]): Promise<readonly unknown[]> => {
    const before = lines.length;
    await rules.sync(view(services), new Set(services.map((one) => serviceKey(one.service))), stages);
    return lines.slice(before).map(({ level, frontend, served, shadowed }) => [level, frontend, served, shadowed]);
  };
  return { sync, registry, rules, lines, v4: ruleSets[0], v6: ruleSets[1], outcomes, addresses };
}

const at = (path: string, parts: ServiceParts = {}): ServiceView => service(path, { ...ready, ...parts });

test("two Services with the same address and port are logged once, with the one that is served", async () => {
  const { sync } = start();
  const [first, second] = [at("a/web"), at("b/web")];
  expect(await sync(second)).toEqual([]);
  expect(await sync(first, second)).toEqual([["error", "10.96.0.10:80/TCP", "a/web", "b/web"]]);
  expect(await sync(first, second)).toEqual([]);
  expect(await sync(first, second, at("c/other", { ips: ["10.96.0.99"] }))).toEqual([]);
});

test("a clash is logged again if it returns after it was resolved", async () => {
  const { sync, rules } = start();
  expect(await sync(at("a/web"), at("b/web"))).toHaveLength(1);
  await rules.sync(view([at("b/web")]), new Set(["a/web"]), stages);
  expect(await sync(at("a/web"), at("b/web"))).toHaveLength(1);
});

test("a Service with many claims to another's addresses is logged once, and the metric has their number", async () => {
  const { sync, registry } = start();
  const ports = [port(80), port(81, { name: "b" })];
  const victim = at("b/web", { ips: ["10.96.0.1"], externalIPs: ["192.0.2.1"], createdSeconds: 1, ports });
  const rival = at("a/rival", {
    ips: ["10.96.0.2"],
    externalIPs: ["10.96.0.1", "192.0.2.1"],
    createdSeconds: 2,
    ports,
  });
  expect(await sync(victim, rival)).toEqual([["error", "10.96.0.1:80/TCP", "b/web", "a/rival"]]);
  const claims = async () => (await registry.getSingleMetric("kpng_backend_refused_claims")?.get())?.values;
  expect(await claims()).toEqual([
    { labels: { service: "a/rival" }, value: 4 },
    { labels: { service: "others" }, value: 0 },
  ]);
  await sync(victim, at("a/rival", { ips: ["10.96.0.2"], ports }));
  expect(await claims()).toEqual([{ labels: { service: "others" }, value: 0 }]);
});

test("the metric names the twenty Services with most claims, so that its size is limited", async () => {
  const { sync, registry } = start();
  const rivals = Array.from({ length: 30 }, (_, at) => `n/r${at}`);
  const services = rivals.map((path, index) => at(path, { ips: [`10.96.1.${index}`], externalIPs: ["10.96.0.1"] }));
  await sync(at("b/web", { ips: ["10.96.0.1"] }), ...services);
  const { values = [] } = (await registry.getSingleMetric("kpng_backend_refused_claims")?.get()) ?? {};
  expect(values).toHaveLength(21);
  expect(values.find(({ labels }) => labels.service === "others")?.value).toBe(10);
});

test("a change of the node's addresses syncs all Services, also in a repair", async () => {
  const { sync, rules, v4, addresses } = start({ nodeportAddresses: ["192.168.0.0/16"] });
  await sync(at("a/web"));
  await rules.sync(view([at("a/web")]), new Set(), stages);
  addresses.v4.push("192.168.0.3");
  await rules.repair();
  await rules.repair();
  expect(v4.touched).toEqual(["all", [], "all", []]);
});

test("a check that does work that was due is a sync, and no repair", async () => {
  class DrainingRuleSet extends MemoryRuleSet {
    override async sync(...args: Parameters<MemoryRuleSet["sync"]>): Promise<RuleChange> {
      const change = await super.sync(...args);
      return args[1] !== "all" && args[1].size === 0 ? { ...change, mode: "partial" } : change;
    }
  }
  const causes: string[] = [];
  const rules = new RuleSets({
    settings: readProxySettings({}, true),
    ruleSets: [new DrainingRuleSet("v4")],
    onOutcome: ({ cause }) => causes.push(cause),
    log: createReadableLog().log,
    localAddresses: () => ({ v4: [], v6: [] }),
  });
  await rules.sync(view([at("a/web")]), "all", stages);
  await rules.repair();
  expect([causes, rules.inspect()[0]?.repairCount]).toEqual([["sync", "sync"], 0]);
});

test("a check that does the work of a failed sync is a sync, and of a failed repair a repair", async () => {
  const { sync, rules, v4, v6, outcomes } = start();
  const fail = async (work: () => Promise<unknown>): Promise<void> => {
    v4.failure = v6.failure = new Error("locked");
    await work();
    v4.failure = v6.failure = undefined;
  };
  await fail(() => sync(at("a/web")));
  await rules.repair();
  v4.lines.clear();
  await fail(() => rules.repair());
  await rules.repair();
  const ofV4 = outcomes.filter(({ family, result }) => family === "v4" && result.kind === "done");
  expect([ofV4.map(({ cause }) => cause), rules.inspect()[0]?.repairCount]).toEqual([["sync", "repair"], 1]);
});

test("a full sync and a repair read the node's addresses, and a partial sync uses a reading", async () => {
  let readings = 0;
  const read = () => ({ v4: ++readings > 0 ? ["192.168.0.2"] : [], v6: [] });
  // The clock shows the number of readings, so each takes a millisecond.
  const recent = new RecentAddresses({ read, nowMs: () => readings });
  const rules = new RuleSets({
    settings: readProxySettings({ nodeportAddresses: ["192.168.0.0/16"] }, true),
    ruleSets: [new MemoryRuleSet("v4")],
    onOutcome: () => undefined,
    log: createReadableLog().log,
    localAddresses: recent.read,
    forgetAddresses: recent.forget,
  });
  const state = view([at("a/web")]);
  const works = [
    () => rules.sync(state, "all", stages),
    () => rules.repair(),
    () => rules.useSaved(state, true, stages),
    () => rules.repair(),
  ];
  const counts: number[] = [];
  for (const work of works) {
    await work();
    counts.push(readings);
    if (work !== works[2]) await rules.sync(state, new Set(), stages);
  }
  expect([counts, readings]).toEqual([[1, 2, 3, 4], 4]);
});

test("a failed family does not prevent the other's sync, and is synced in full next time", async () => {
  const { sync, rules, v4, v6, outcomes } = start();
  await sync(at("a/web", { ips: ["10.96.0.10", "fd00::10"] }));
  v6.failure = new Error("no IPv6 today");
  const both = [at("a/web", { ips: ["10.96.0.10", "fd00::10"] }), at("b/web", { ips: ["10.96.0.11", "fd00::11"] })];
  const failed = await rules.sync(view(both), new Set(["b/web"]), stages);
  expect(failed).toMatchObject({ inForce: ["v4"], failure: { cause: v6.failure } });
  expect([v4.lines.size, v6.lines.size]).toEqual([2, 1]);
  v6.failure = undefined;
  await rules.sync(view(both), new Set(["b/web"]), stages);
  expect([v4.touched.at(-1), v6.touched.at(-1), v6.lines.size]).toEqual([["b/web"], "all", 2]);
  const ofV6 = outcomes.filter(({ family }) => family === "v6");
  expect(ofV6.map(({ result }) => result.kind)).toEqual(["done", "failed", "done"]);
});

test("a saved view does not replace rules of an earlier run, also if the kernel did not say at first whether there are any", async () => {
  const { rules, v4 } = start();
  v4.lines.set("a/newer", "a/newer 10.96.0.10:80/TCP");
  v4.failure = new Error("cannot read the kernel");
  const { failure } = await rules.useSaved(view([at("a/web")]), false, stages);
  expect(failure).toEqual({ cause: v4.failure });
  v4.failure = undefined;
  await rules.repair();
  expect([...v4.lines.keys()]).toEqual(["a/newer"]);
  v4.lines.clear();
  await rules.repair();
  expect([...v4.lines.keys()]).toEqual(["a/web"]);
});

test("a repair undoes and reports changes of other programs, and does nothing before the first sync", async () => {
  const { sync, rules, v4 } = start();
  await rules.repair();
  await sync(at("a/web"), at("b/web", { ips: ["10.96.0.11"] }));
  v4.lines.delete("a/web");
  v4.lines.set("x/other", "x/other");
  await rules.repair();
  expect([...v4.lines.keys()].sort()).toEqual(["a/web", "b/web"]);
  const [inspected] = rules.inspect();
  expect([inspected?.drift, inspected?.repairCount]).toEqual([["a/web: rules differ", "x/other: rules differ"], 1]);
  await rules.repair();
  expect(rules.inspect().map(({ drift, repairCount }) => [drift, repairCount])).toEqual([
    [[], 1],
    [[], 0],
  ]);
});

test("a sync plans each touched Service once", async () => {
  let planned = 0;
  const counted = (item: ServiceView): ServiceView =>
    new Proxy(item, {
      get: (target, name) => {
        if (name === "endpoints") planned++;
        return Reflect.get(target, name);
      },
    });
  const services = [at("a/web"), at("b/web", { ips: ["10.96.0.11"] })].map(counted);
  const node = planNode(readProxySettings({}, true), "v4", { node: view([]).node, localAddresses: { v4: [], v6: [] } });
  for (const one of services) planService(one, node);
  const once = planned;
  planned = 0;
  const { sync, rules, v4 } = start();
  await sync(...services);
  expect([planned, v4.lines.size]).toEqual([once, 2]);
  planned = 0;
  await rules.sync(view(services), new Set(["a/web", "b/web"]), stages);
  expect(planned).toBe(once);
});

test("a Service that asks for whole addresses is reported once if the rules serve only ports, and gets its ports", async () => {
  const { rules, registry, lines, v4 } = start();
  const owner = at("a/all", { mapIP: true });
  const sync = (services: readonly ServiceView[]) => rules.sync(view(services), new Set(["a/all"] as const), stages);
  const count = async () =>
    (await registry.getSingleMetric("kpng_backend_unserved_whole_addresses")?.get())?.values[0]?.value;
  await sync([owner]);
  await sync([owner, at("b/web", { ips: ["10.96.0.11"] })]);
  expect(lines.map(({ msg, service: name }) => [msg, name])).toEqual([
    ["a Service asks for whole addresses: this backend serves only its ports", "a/all"],
  ]);
  expect(await count()).toBe(1);
  expect(v4.lines.get("a/all")).toBe("a/all 10.96.0.10:80/TCP");
  await sync([at("a/all")]);
  expect(await count()).toBe(0);
});

test.each(["retry", "check"])("half of a saved view is not taken for the rules of an earlier run: %s", async (how) => {
  const { rules, v4 } = start();
  const saved = view([at("a/web"), at("b/web", { ips: ["10.96.0.11"] })]);
  const useSaved = () => rules.useSaved(saved, false, stages);
  if (how === "check") {
    v4.lines.set("x/old", "x");
    await useSaved();
    v4.lines.clear();
  }
  const sync = v4.sync.bind(v4);
  v4.sync = async (...args) => {
    await sync(...args);
    v4.lines.delete("b/web");
    v4.sync = sync;
    throw new Error("the second table failed");
  };
  const steps = how === "check" ? [() => rules.repair(), () => rules.repair()] : [useSaved, useSaved];
  for (const step of steps) await step();
  expect([...v4.lines.keys()]).toEqual(["a/web", "b/web"]);
});
