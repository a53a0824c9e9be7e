import { setTimeout as sleep } from "node:timers/promises";
import { runBackendCommand } from "@kpng/backend-kit/backend/run-backend.ts";
import { proxyBackend } from "@kpng/backend-kit/proxy/proxy-backend.ts";
import type { FamilyPlan, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { deleteTables, openRuleSets } from "@kpng/nftables/commit/open-rule-sets.ts";
import type { ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { type Fault, faults } from "./faults.ts";

// A service proxy with one fault, of which `kpng conformance packets` must speak: `node faulty-proxy.ts FAULT OPTIONS…`,
// with the options of kpng-nft, whose rules it makes.

const [, , name = "", ...options] = process.argv;
const fault = faults[name];
if (fault === undefined) throw new Error(`there is no fault "${name}"`);
process.argv.splice(2, 1);
if (options.length === 0) throw new Error("options are missing");

const settings = { table: "faulty", masqueradeBit: 14, maxClients: 1_000 };

/** Rules of a plan with a fault. */
function faulty(rules: RuleSet, { plan: change, forgetsDeletes = false }: Fault): RuleSet {
  const installed = new Map<ServiceKey, ServicePlan>();
  const wrong = (plan: FamilyPlan): FamilyPlan => {
    const service = (key: ServiceKey): ServicePlan | undefined => {
      const right = plan.service(key);
      if (right === undefined) return forgetsDeletes ? installed.get(key) : undefined;
      // With a wrong marker, no state would count as applied. Its endpoint must not be a hairpin for other Services.
      const isMarker = key === "default/zz-marker";
      const changed = isMarker ? { ...right, hairpin: [] } : (change?.(right, installed.get(key)) ?? right);
      installed.set(key, changed);
      return changed;
    };
    const keys = () => (forgetsDeletes ? new Set([...installed.keys(), ...plan.keys()]) : plan.keys());
    return { ...plan, keys, service };
  };
  return {
    family: rules.family,
    sync: (plan, touched, stages) => rules.sync(wrong(plan), touched, stages),
    repair: () => rules.repair(),
    isInstalled: () => rules.isInstalled(),
    desired: rules.desired,
    installed: rules.installed,
  };
}

await runBackendCommand(
  proxyBackend({
    name: "faulty",
    proxyMode: "nftables",
    description: "a proxy with one fault",
    defaultNodePortAddresses: "primary",
    options: [],
    examples: "",
    makeProxy: () => ({
      wantsLoopbackNodePorts: false,
      carriesTraffic: fault.leavesConntrack === true,
      openRuleSets: async (host) => {
        if (fault.startsEmpty === true) {
          await deleteTables(settings.table, host.log);
          await sleep(500);
        }
        return { ruleSets: (await openRuleSets(settings, host)).map((rules) => faulty(rules, fault)) };
      },
      cleanUp: async ({ log }) => (fault.leavesRules === true ? undefined : deleteTables(settings.table, log)),
    }),
  }),
);
