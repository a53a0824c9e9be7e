import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import { SyncRequests } from "@kpng/backend-kit/sync/sync-loop.ts";
import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { createLog } from "@kpng/process/log.ts";
import type { ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { IpvsRuleSet } from "../commit/ipvs-rule-set.ts";
import type { readConnectionCounts } from "../read/connection-counts.ts";
import { RunTool } from "../read/run-tool.ts";
import { objectNames } from "../render/kernel-objects.ts";
import { frontend, webPlan } from "./plans.ts";

interface Parts {
  readonly family: Family;
  readonly localAddresses: () => AddressSet;
  readonly logLines: string[];
  readonly excludedCIDRs: readonly string[];
  readonly requests: SyncRequests;
  readonly nowMs: () => number;
  /** Default: real servers have no connections. */
  readonly readConnections: typeof readConnectionCounts;
}

export const stages = { committing: () => undefined };

/** Opens a rule set that runs the tools of `useTools` or `useKernel`. The tests of `commit/` use this file. */
export function openRuleSet(parts: Partial<Parts> = {}): IpvsRuleSet {
  const { family = "v4", localAddresses = () => ({ v4: ["192.0.2.1"], v6: [] }), logLines = [] } = parts;
  const { excludedCIDRs = [], requests = new SyncRequests() } = parts;
  const { nowMs, readConnections } = { readConnections: async () => new Map<string, number>(), ...parts };
  const log = createLog("error", (line) => void logLines.push(line));
  const runTool = new RunTool();
  return new IpvsRuleSet({
    family,
    names: objectNames(""),
    runTool,
    excludedCIDRs,
    masqueradeBit: 14,
    scheduler: "rr",
    localAddresses,
    log,
    nowMs,
    readConnections,
    requests,
  });
}

/** Returns the plan of these Services. */
export function planOfServices(family: Family, plans: readonly ServicePlan[]): FamilyPlan {
  const services = new Map(plans.map((plan) => [plan.key, { ...plan, family }]));
  return { node: nodePlan({ family }), keys: () => services.keys(), service: (key) => services.get(key) };
}

/** Plan of 100 Services with the endpoints 10.1.1.7 and 10.1.2.8. `parts` replaces parts of the port of one Service. */
export function planOf(at: number, parts: Partial<ServicePlan["ports"][number]>): FamilyPlan {
  return planOfServices(
    "v4",
    Array.from({ length: 100 }, (_, index) => {
      const number = index + 1;
      const plan = webPlan([frontend({ address: `10.96.0.${number}` })], number === at ? parts : {});
      return { ...plan, key: `ns/s${number}` satisfies ServiceKey };
    }),
  );
}
