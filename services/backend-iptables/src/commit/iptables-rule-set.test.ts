import { familyPlan } from "@kpng/backend-kit/testing/family-plans.ts";
import { view } from "@kpng/model/testing/views.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { ChainNames } from "../render/chains.ts";
import { IptablesRuleSet, listRules, makeIptablesChange } from "./iptables-rule-set.ts";
import { observeRules } from "./observe-rules.ts";

const [shop, shopChain, other] = [
  "KPNG-EXT-AAAAAAAAAAAAAAAA",
  "KPNG-SVC-AAAAAAAAAAAAAAAA",
  "KPNG-SVC-BBBBBBBBBBBBBBBB",
];
const bodies = new Map([
  [
    "nat KPNG-IP-10.96.0.0",
    `-A KPNG-IP-10.96.0.0 -d 10.96.0.1/32 -m comment --comment "ns/shop:http external IP" -j ${shop}\n` +
      `-A KPNG-IP-10.96.0.0 -d 10.96.0.2/32 -m comment --comment "ns/shop-2:http cluster IP" -j ${other}\n`,
  ],
  [`nat ${shop}`, `-A ${shop} -j KPNG-MARK-MASQ\n-A ${shop} -j ${shopChain}\n`],
  [`nat ${shopChain}`, `-A ${shopChain} -p tcp -m tcp -j DNAT --to-destination 10.1.0.1:80\n`],
  [`nat ${other}`, `-A ${other} -p tcp -m tcp -j DNAT --to-destination 10.1.0.2:80\n`],
  ["nat KPNG-MARK-MASQ", "-A KPNG-MARK-MASQ -j MARK --or-mark 0x4000\n"],
] as const);

test("the rules of one Service are the lines that name it, and the chains of its ports that these lead to", () => {
  expect(listRules(() => bodies).linesOf?.("ns/shop")).toEqual([
    `nat -A ${shop} -j KPNG-MARK-MASQ`,
    `nat -A ${shop} -j ${shopChain}`,
    `nat -A KPNG-IP-10.96.0.0 -d 10.96.0.1/32 -m comment --comment "ns/shop:http external IP" -j ${shop}`,
    `nat -A ${shopChain} -p tcp -m tcp -j DNAT --to-destination 10.1.0.1:80`,
  ]);
  expect(listRules(() => bodies).linesOf?.("ns/absent")).toEqual([]);
});

test("metrics count the rules, those of the last sync, and failed syncs, with those of a few Services apart", async () => {
  const registry = new Registry();
  const onOutcome = observeRules(registry, [{ family: "v4", desiredChains: bodies }]);
  const none = { puts: [], deletes: [], jumps: [] };
  const puts = [{ chain: "KPNG-A", body: "-A KPNG-A -j X\n-A KPNG-A -j Y\n" }];
  const change = makeIptablesChange("partial", { filter: none, nat: { ...none, puts } }, new Map());
  const failed = { kind: "failed", error: new Error("refused"), mode: "partial" } as const;
  onOutcome({ family: "v4", cause: "sync", result: { kind: "done", change }, elapsedMs: 1 });
  onOutcome({ family: "v4", cause: "sync", result: failed, elapsedMs: 1 });
  onOutcome({ family: "v4", cause: "repair", result: { ...failed, mode: "full" }, elapsedMs: 1 });
  const text = await registry.metrics();
  for (const line of [
    'iptables_total{table="nat",ip_family="IPv4"} 7',
    'iptables_last{table="nat",ip_family="IPv4"} 2',
    'iptables_restore_failures_total{ip_family="IPv4"} 2',
    'iptables_partial_restore_failures_total{ip_family="IPv4"} 1',
  ])
    expect(text).toContain(`kubeproxy_sync_proxy_rules_${line}`);
});

test("a repair follows a change of conntrack's setting, which the rule against INVALID packets depends on", async () => {
  const restored: string[] = [];
  let isLiberal = false;
  const rules = new IptablesRuleSet({
    family: "v4",
    settings: { names: new ChainNames("KPNG-"), masqueradeMark: 0x4000 },
    kernel: {
      read: async (take) => take("*filter\nCOMMIT\n*nat\nCOMMIT\n"),
      restore: async (text) => void restored.push(text),
    },
    isConntrackLiberal: async () => isLiberal,
  });
  await rules.sync(familyPlan(view([]), nodePlan()), "all", { committing: () => undefined });
  expect(restored.at(-1)).toContain("--ctstate INVALID");
  isLiberal = true;
  await rules.repair();
  expect(restored).toHaveLength(2);
  expect(restored.at(-1)).not.toContain("--ctstate INVALID");
});
