import { planNode } from "@kpng/service-plan/plan-node.ts";
import { onRandomStates, plansOf } from "@kpng/service-plan/testing/random-views.ts";
import { expect, test } from "vitest";
import { chainNames } from "../render/chains.ts";
import { makeRenderOptions } from "../render/render-options.ts";
import type { ChainId } from "../render/rule.ts";
import { rulesText } from "../testing/rules.ts";
import { findDamage, findInstalledRules, findInstalledState } from "./installed-rules.ts";

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

const services = ["nat KPNG-SERVICES", "-A KPNG-SERVICES -d 10.96.0.0/24 -j KPNG-IP-10.96.0.0\n"] as const;
const record = ["nat KPNG-RECORD", '-A KPNG-RECORD -m comment --comment "kpng layout 1; boot=1,plans=2"\n'] as const;
const emptied = (chain: readonly [ChainId, string]): readonly [ChainId, string] => [chain[0], ""];

test.each<{
  readonly name: string;
  readonly chains: readonly (readonly [ChainId, string])[];
  readonly hasJumps: boolean;
  readonly state: ReturnType<typeof findInstalledState>;
}>([
  { name: "no rules", chains: [], hasJumps: false, state: { kind: "absent" } },
  {
    name: "rules with a record",
    chains: [services, record],
    hasJumps: true,
    state: { kind: "marked", record: "boot=1,plans=2" },
  },
  {
    name: "rules with a record and without jumps",
    chains: [services, record],
    hasJumps: false,
    state: { kind: "marked", record: "boot=1,plans=2" },
  },
  { name: "rules of a release without records", chains: [services], hasJumps: true, state: { kind: "unmarked" } },
  {
    name: "rules without a record that nothing reaches",
    chains: [services],
    hasJumps: false,
    state: { kind: "absent" },
  },
  {
    name: "jumps to chains that another program has flushed",
    chains: [emptied(services), emptied(record)],
    hasJumps: true,
    state: { kind: "absent" },
  },
])("$name are $state.kind", ({ chains, hasJumps, state }) => {
  const jumps = new Map<ChainId, readonly string[]>(hasJumps ? [["nat PREROUTING", ["-j KPNG-SERVICES"]]] : []);
  expect(findInstalledState({ chains: new Map(chains), jumps }, chainNames("KPNG-"))).toEqual(state);
});
