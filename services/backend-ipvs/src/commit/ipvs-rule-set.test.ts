import { expect, test } from "vitest";
import { frontend, webPlan } from "../testing/plans.ts";
import { openRuleSet, planOf, planOfServices, stages } from "../testing/rule-sets.ts";
import { useTools } from "../testing/use-tools.ts";

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

const allWork = { ip: "", ipset: "", ipvsadm: "", "iptables-save": "", "iptables-restore": "" };

test("link-local addresses, which come and go with pods, do not render all Services again", async () => {
  useTools({ ...allWork, "ip6tables-save": "", "ip6tables-restore": "" });
  let v6 = ["2001:db8::1", "fe80::1"];
  const rules = openRuleSet({ family: "v6", localAddresses: () => ({ v4: [], v6 }) });
  const plan = planOfServices("v6", [webPlan([frontend({ address: "fd00::1" })])]);
  await rules.sync(plan, "all", stages);
  const asked: string[] = [];
  const keys = () => {
    asked.push("all");
    return plan.keys();
  };
  v6 = ["fe80::2", "2001:db8::1"];
  await rules.sync({ ...plan, keys }, new Set(), stages);
  expect(asked).toEqual([]);
  v6 = ["2001:db8::1", "2001:db8::2"];
  await rules.sync({ ...plan, keys }, new Set(), stages);
  expect(asked).toEqual(["all"]);
});

test("connections that take long to read are read rarely while endpoints drain", async () => {
  useTools(allWork);
  let [nowMs, reads] = [0, 0];
  const readConnections = () => {
    reads++;
    nowMs += 100;
    return new Map();
  };
  const rules = openRuleSet({ nowMs: () => nowMs, readConnections });
  await rules.sync(planOf(0, {}), "all", stages);
  const removed = planOf(42, { sets: { cluster: [], local: [] } });
  for (let sync = 0; sync < 10; sync++) {
    nowMs += 100;
    await rules.sync(removed, new Set(["ns/s42"]), stages);
  }
  expect(reads).toBe(1);
  nowMs += 2_000;
  await rules.sync(removed, new Set(), stages);
  expect(reads).toBe(2);
});
