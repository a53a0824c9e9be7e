import { planNode } from "@kpng/service-plan/plan-node.ts";
import { onRandomStates, plansOf } from "@kpng/service-plan/testing/random-views.ts";
import { expect, test } from "vitest";
import { chainNames } from "../render/chain-names.ts";
import { makeRenderOptions } from "../render/make-render-options.ts";
import type { ChainId } from "../render/table.ts";
import { rulesText } from "../testing/rules-text.ts";
import { findDamage } from "./find-damage.ts";
import { findInstalledRules } from "./installed-rules.ts";

test("our own rules for random states have no damage, and an emptied chain of Services is found", () => {
  let count = 0;
  onRandomStates(60, (state, family) => {
    const { view, localAddresses } = state;
    const node = planNode(state.settings, family, { node: view.node, localAddresses });
    const settings = { names: chainNames("KPNG-"), masqueradeBit: 14 };
    const options = makeRenderOptions(settings, node, { isConntrackLiberal: false });
    const plans = plansOf(state, options.node);
    const { chains } = findInstalledRules(rulesText(plans, options), "KPNG-");
    expect(findDamage({ chains }, "KPNG-")).toBeUndefined();
    const hasServices = [...chains.keys()].some((id) => id.startsWith("nat KPNG-IP-"));
    for (const emptied of [...chains.keys()].filter((id) => /^nat KPNG-(?:SERVICES|SVC-|IP-)/.test(id))) {
      if (!hasServices) continue;
      count++;
      const damage = findDamage({ chains: new Map<ChainId, string>([...chains, [emptied, ""]]) }, "KPNG-");
      expect(damage, emptied).toMatch(/^chain KPNG-\S+ has no rules$|^no rule leads to chain KPNG-/);
    }
  });
  expect(count).toBeGreaterThan(100);
});
