import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import { SyncRequests } from "@kpng/backend-kit/sync/sync-requests.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { createLog } from "@kpng/process/log.ts";
import type { ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { objectNames } from "../render/object-names.ts";
import { frontend, webPlan } from "../testing/plans.ts";
import { useTools } from "../testing/use-tools.ts";
import { IpvsRuleSet } from "./ipvs-rule-set.ts";
import { Schedulers } from "./schedulers.ts";

const runTool = new RunTool(30_000);
const stages = { committing: () => undefined };

function openRuleSet(): IpvsRuleSet {
  const log = createLog("error", () => undefined);
  return new IpvsRuleSet({
    ...{ family: "v4", names: objectNames(""), runTool, excludedCIDRs: [], masqueradeBit: 14, drainMs: 0 },
    schedulers: new Schedulers({ runTool, standard: "rr", log, mayTry: false }),
    requests: new SyncRequests(),
    localAddresses: () => ({ v4: ["192.0.2.1"], v6: [] }),
  });
}

/** Plan of 100 Services with the endpoints 10.1.1.7 and 10.1.2.8. `parts` replaces parts of the port of one Service. */
function planOf(at: number, parts: Partial<ServicePlan["ports"][number]>): FamilyPlan {
  const services = new Map<ServiceKey, ServicePlan>();
  for (let number = 1; number <= 100; number++) {
    const plan = webPlan([frontend({ address: `10.96.0.${number}` })], number === at ? parts : {});
    const key = `ns/s${number}` as const;
    services.set(key, { ...plan, key });
  }
  return { node: nodePlan(), keys: () => services.keys(), service: (key) => services.get(key) };
}

test("a change writes the lines of its Service only, and a sync without a change runs nothing", async () => {
  const works = "exit 0";
  const tools = useTools({
    ...{ ip: works, ipset: works, ipvsadm: works, "iptables-save": works, "iptables-restore": works },
  });
  const rules = openRuleSet();
  const three = ["10.1.1.7", "10.1.2.8", "10.1.3.9"].map((address) => ({ address, port: 8080 }));
  await rules.sync(planOf(0, {}), "all", stages);
  const full = tools.readInputs().length;
  expect(full).toBeGreaterThan(500);

  const added = planOf(42, { sets: { cluster: three, local: [] } });
  expect(await rules.sync(added, new Set(["ns/s42"]), stages)).toMatchObject({ mode: "partial", puts: 1, deletes: 0 });
  expect(tools.readInputs().slice(full)).toEqual(["-a -t 10.96.0.42:80 -r 10.1.3.9:8080 -m -w 1"]);

  expect(await rules.sync(added, new Set(["ns/s42"]), stages)).toMatchObject({ mode: "none" });
  expect(tools.readInputs()).toHaveLength(full + 1);
});
