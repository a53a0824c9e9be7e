import { expect, test } from "vitest";
import { openRuleSet, planOf, stages } from "../testing/rule-sets.ts";
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
