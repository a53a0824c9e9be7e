import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { keepYoungGenerationSmall } from "@kpng/process/run/memory.ts";
import type { Frontend, Route, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { readEbpfSettings } from "../backend.ts";
import { FamilyTables } from "../datapath/family-tables.ts";
import { EbpfMaps, GracePeriods } from "../datapath/maps.ts";

// Measures how long maps take to be filled and to be changed for one Service, with 10 endpoints and three frontends a
// Service: `npm run bench -- ebpf-alone [SERVICES…]`. Planning is not included, and nothing is attached.

const sizes = process.argv.length > 2 ? process.argv.slice(2).map(Number) : [1_000, 10_000];
const changes = 2_000;
const folder = "/sys/fs/bpf/kpng-bench";
// As a backend does.
keepYoungGenerationSmall();

const route: Route = { kind: "balance", set: "cluster", isMasqueraded: true };
const routes = { pod: { ...route, isMasqueraded: false }, node: route, outside: route };

function servicePlan(at: number, endpointCount: number): ServicePlan {
  const cluster = Array.from({ length: endpointCount }, (_, endpoint) => ({
    address: `10.${100 + endpoint}.${at >> 8}.${at & 255}`,
    port: 8_080,
  }));
  const place = { protocol: "TCP", port: 80, sources: undefined, routes } as const;
  const frontends: readonly Frontend[] = [
    { ...place, kind: "clusterIP", address: `10.96.${at >> 8}.${at & 255}` },
    { ...place, kind: "loadBalancerIP", address: `198.18.${at >> 8}.${at & 255}` },
    { ...place, kind: "nodePort", address: undefined, port: 20_000 + at },
  ];
  const port = { name: `ns/web-${at}`, protocol: "TCP", port: 80, affinitySeconds: undefined } as const;
  return {
    key: `ns/web-${at}`,
    family: "v4",
    hairpin: [],
    healthCheck: undefined,
    ports: [{ ...port, sets: { cluster, local: [] }, frontends }],
  };
}

async function run(services: number): Promise<void> {
  const { mapSizes } = readEbpfSettings({}, "");
  const maps = EbpfMaps.open(folder, mapSizes);
  const grace = new GracePeriods();
  const plans = new Map<ServiceKey, ServicePlan>();
  for (let at = 0; at < services; at++) plans.set(`ns/web-${at}`, servicePlan(at, 10));
  const plan: FamilyPlan = {
    node: nodePlan({ family: "v4" }),
    keys: () => plans.keys(),
    service: (key) => plans.get(key),
  };
  const tables = new FamilyTables("v4", maps, grace, mapSizes);
  const before = process.cpuUsage();
  await tables.syncAll(plan);
  const { user, system } = process.cpuUsage(before);
  const each: number[] = [];
  for (let at = 0; at < changes; at++) {
    const index = (at * 37) % services;
    const key: ServiceKey = `ns/web-${index}`;
    plans.set(key, servicePlan(index, at % 2 === 0 ? 9 : 10));
    const start = performance.now();
    tables.sync(plan, [key]);
    each.push(performance.now() - start);
    if (at % 100 === 0) await grace.pass();
  }
  each.sort((a, b) => a - b);
  const median = each[each.length >> 1] ?? 0;
  process.stdout.write(
    `${services} Services × 10 endpoints: full CPU ${((user + system) / 1_000).toFixed(0)} ms, change median ${median.toFixed(3)} ms, ` +
      `peak RSS ${Math.round(process.resourceUsage().maxRSS / 1024)} MB\n`,
  );
  await tables.syncAll({ ...plan, keys: () => [], service: () => undefined });
  await grace.pass();
}

for (const services of sizes) await run(services);
