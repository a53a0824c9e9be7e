import { familyLabels } from "@kpng/backend-kit/observe/proxy-metrics.ts";
import type { Family } from "@kpng/model/address.ts";
import { Gauge, type Registry } from "prom-client";

interface RefusedObjects {
  readonly family: Family;
  readonly refusedCount: number;
}

/**
 * Registers the metric of objects that the kernel refuses. `backend.ts` calls it once. Separate from `IpvsRuleSet`,
 * which has one family.
 */
export function observeRefused(registry: Registry, ruleSets: readonly RefusedObjects[]): void {
  new Gauge({
    name: "kpng_ipvs_refused_objects",
    help: "Addresses and endpoints that the kernel refuses, so that Services are served without them",
    labelNames: ["ip_family"] as const,
    registers: [registry],
    collect() {
      for (const { family, refusedCount } of ruleSets) this.set({ ip_family: familyLabels[family] }, refusedCount);
    },
  });
}
