import { familyLabels } from "@kpng/backend-kit/observe/family-labels.ts";
import { Counter, Gauge, type Registry } from "prom-client";
import { countRules } from "./diff/transaction-text.ts";
import type { FamilyParts, OnSynced } from "./node-rules.ts";
import { tables } from "./render/table.ts";

export interface RulesMetrics {
  /** To be called once the families are known: only those get series. */
  begin(): void;
  readonly onSynced: OnSynced;
}

/**
 * Measures the rules, under kube-proxy's names where it has the same measure; what is returned must be told of each sync.
 *
 * `families` is asked at each scrape: to count all rules at each sync would cost more than the sync.
 */
export function createRulesMetrics(registry: Registry, families: () => readonly FamilyParts[]): RulesMetrics {
  const registers = [registry];
  const labelNames = ["table", "ip_family"] as const;
  new Gauge({
    name: "kubeproxy_sync_proxy_rules_iptables_total",
    help: "Rules that stand in the kernel",
    labelNames,
    registers,
    collect() {
      for (const { tools, rules } of families()) {
        for (const table of tables) {
          const bodies = [...rules.bodies].filter(([id]) => id.startsWith(table)).map(([, body]) => body);
          this.set({ table, ip_family: familyLabels[tools.family] }, countRules(bodies));
        }
      }
    },
  });
  const last = new Gauge({
    name: "kubeproxy_sync_proxy_rules_iptables_last",
    help: "Rules that the last sync wrote",
    labelNames,
    registers,
  });
  const failures = new Counter({
    name: "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
    help: "Syncs that failed; the next one compares everything",
    labelNames: ["ip_family"] as const,
    registers,
  });
  const partialFailures = new Counter({
    name: "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
    help: "Those of them that looked only at what had changed",
    labelNames: ["ip_family"] as const,
    registers,
  });
  const repairs = new Counter({
    name: "kpng_iptables_repairs_total",
    help: "Times that somebody else's change to our rules was undone",
    labelNames: ["ip_family"] as const,
    registers,
  });
  const begin = (): void => {
    // A rate over a series that appears with its first event misses that event.
    for (const { family } of families()) {
      for (const counter of [failures, partialFailures, repairs]) counter.inc({ ip_family: familyLabels[family] }, 0);
    }
  };
  const onSynced: OnSynced = ({ tools }, result, _elapsedMs, cause) => {
    const ip_family = familyLabels[tools.family];
    if ("error" in result) {
      failures.inc({ ip_family });
      if (result.mode === "partial") partialFailures.inc({ ip_family });
      return;
    }
    if (cause === "repair") {
      if (result.mode !== "none") repairs.inc({ ip_family });
      return;
    }
    for (const table of tables) {
      last.set({ table, ip_family }, countRules(result.change[table].puts.map(({ body }) => body)));
    }
  };
  return { begin, onSynced };
}
