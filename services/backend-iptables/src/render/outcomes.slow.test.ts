import { planNode } from "@kpng/service-plan/plan-node.ts";
import { indexPlans, outcomes } from "@kpng/service-plan/testing/outcomes.ts";
import { packetsTo } from "@kpng/service-plan/testing/random-packets.ts";
import { onRandomStates, plansOf } from "@kpng/service-plan/testing/random-views.ts";
import { expect, test } from "vitest";
import { parseRuleset } from "../../../../test/packet-tracer/parse-ruleset.ts";
import { trace } from "../../../../test/packet-tracer/trace.ts";
import { rulesText } from "../testing/rules.ts";
import { ChainNames } from "./chains.ts";

test("the rules do with every packet what the plan says", () => {
  let count = 0;
  onRandomStates(250, (state, family) => {
    const { view, localAddresses } = state;
    const node = planNode(state.settings, family, { node: view.node, localAddresses });
    const names = new ChainNames("KPNG-");
    const options = { names, masqueradeMark: 0x4000, node, isConntrackLiberal: false };
    const plans = plansOf(state, options.node);
    const localCIDRs = [family === "v4" ? "127.0.0.0/8" : "::1/128", ...localAddresses[family]];
    const planned = indexPlans(options.node, localCIDRs, plans);
    const ruleset = parseRuleset(rulesText(plans, options));
    const links = { localCIDRs, outInterface: () => "eth0" };
    for (const packet of packetsTo(planned, state)) {
      count++;
      const name = JSON.stringify(packet);
      expect(new Set(outcomes(planned, packet)), name).toEqual(new Set(trace(ruleset, links, packet)));
    }
  });
  expect(count).toBeGreaterThan(5_000);
});
