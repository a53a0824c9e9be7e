import { describe, expect, test } from "vitest";
import { scenarios } from "../scenario/scenarios.ts";
import { updates } from "../scenario/updates.ts";
import { checkRules } from "./check-rules.ts";
import { renderKpngIptables } from "./render-kpng-iptables.ts";

// test/kernel verifies these results with real packets, for kube-proxy and for us, and that the tracer agrees.
describe("kpng-iptables' rules, traced", () => {
  test("without the rules, every scenario with an answer fails", () => {
    const none = { v4: "", v6: "" };
    const answered = scenarios.filter(({ packets }) => packets.some((packet) => "goesTo" in packet));
    expect(answered.filter((scenario) => checkRules(none, scenario, "iptables").length === 0)).toEqual([]);
  });

  for (const scenario of scenarios) {
    test(scenario.name, async () => {
      const rules = await renderKpngIptables(scenario.state, scenario.settings ?? {}, scenario.firewall);
      const wrong = checkRules(rules, scenario, "iptables");
      if (wrong.length > 0) expect.fail([...wrong, rules.v4].join("\n"));
    });
  }

  for (const { name, after } of updates) {
    test(`after ${name}`, async () => {
      const rules = await renderKpngIptables(after.state, {});
      expect(checkRules(rules, after, "iptables")).toEqual([]);
    });
  }
});
