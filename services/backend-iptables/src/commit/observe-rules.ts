import { familyLabels } from "@kpng/backend-kit/observe/proxy-metrics.ts";
import type { FamilyOutcome } from "@kpng/backend-kit/proxy/rule-sets.ts";
import { Counter, Gauge, type Registry } from "prom-client";
import { countRules } from "../diff/diff-chains.ts";
import { tables } from "../render/rule.ts";
import type { IptablesChange, IptablesRuleSet } from "./iptables-rule-set.ts";

/**
 * Registers the metrics about rules, under the names that kube-proxy uses. Call the returned function after each sync
 * and repair of a family.
 *
 * All rules are counted at each scrape; counting them at each sync would take longer than a partial sync itself.
 */
export function observeRules(
  registry: Registry,
  ruleSets: readonly Pick<IptablesRuleSet, "family" | "desiredChains">[],
): (outcome: FamilyOutcome<IptablesChange>) => void {
  const registers = [registry];
  const labelNames = ["table", "ip_family"] as const;
  new Gauge({
    name: "kubeproxy_sync_proxy_rules_iptables_total",
    help: "Rules that should be installed",
    labelNames,
    registers,
    collect() {
      for (const { family, desiredChains } of ruleSets) {
        for (const table of tables) {
          const bodies = [...desiredChains].filter(([id]) => id.startsWith(table)).map(([, body]) => body);
          this.set({ table, ip_family: familyLabels[family] }, countRules(bodies));
        }
      }
    },
  });
  const last = new Gauge({
    name: "kubeproxy_sync_proxy_rules_iptables_last",
    help: "Rules written by the last sync",
    labelNames,
    registers,
  });
  const failures = new Counter({
    name: "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
    help: "Failed syncs and repairs; the next sync compares all rules",
    labelNames: ["ip_family"] as const,
    registers,
  });
  const partialFailures = new Counter({
    name: "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
    help: "Failed partial syncs, which compared only the rules of changed Services",
    labelNames: ["ip_family"] as const,
    registers,
  });
  // Create a sample before the first failure; otherwise a rate() of the counter would miss that failure.
  for (const { family } of ruleSets) {
    for (const counter of [failures, partialFailures]) counter.inc({ ip_family: familyLabels[family] }, 0);
  }
  return ({ family, cause, result }) => {
    const ip_family = familyLabels[family];
    if (result.kind === "failed") {
      failures.inc({ ip_family });
      if (result.mode === "partial") partialFailures.inc({ ip_family });
    } else if (cause === "sync" && result.kind === "done") {
      const { ruleset } = result.change;
      for (const table of tables) {
        last.set({ table, ip_family }, countRules(ruleset[table].puts.map(({ body }) => body)));
      }
    }
  };
}
