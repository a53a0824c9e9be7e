import type { ServiceKey } from "@kpng/model/service.ts";
import type { InspectedRules } from "../inspect/backend-inspection.ts";
import type { SyncMode } from "../types/sync-update.ts";
import type { RuleChange, RuleList, RuleSet } from "./rule-set.ts";

/** Records the changes of a rule set, which `kpng get rules` shows (`--inspect-socket`). */
export class RuleSetHistory {
  readonly #ruleSet: Pick<RuleSet, "family" | "desired" | "installed">;
  #readAtMs: number | undefined;
  #committedAtMs: number | undefined;
  #lastTransaction = "";
  #drift: readonly string[] = [];
  #repairCount = 0;

  constructor(ruleSet: Pick<RuleSet, "family" | "desired" | "installed">) {
    this.#ruleSet = ruleSet;
  }

  /** Adds a successful change; `mode` is how much was compared. */
  add(cause: "sync" | "repair", mode: SyncMode, change: RuleChange): void {
    const isChanged = change.mode !== "none";
    if (mode === "full") this.#readAtMs = Date.now();
    if (isChanged) {
      this.#committedAtMs = Date.now();
      this.#lastTransaction = change.transaction;
    }
    if (cause === "sync") return;
    this.#drift = isChanged ? change.differences().map(({ summary }) => summary) : [];
    if (isChanged) this.#repairCount++;
  }

  /** Returns the current state for inspection. */
  inspect(): InspectedRules {
    const { family, desired, installed } = this.#ruleSet;
    return {
      name: family,
      desiredCount: desired.count,
      actualCount: installed.count,
      desired: (service) => linesOf(desired, service),
      actual: (service) => linesOf(installed, service),
      readAtMs: this.#readAtMs,
      lastTransaction: this.#lastTransaction,
      committedAtMs: this.#committedAtMs,
      drift: this.#drift,
      repairCount: this.#repairCount,
    };
  }
}

function linesOf(rules: RuleList, service: ServiceKey | undefined): readonly string[] {
  if (service === undefined) return rules.lines();
  if (rules.linesOf !== undefined) return rules.linesOf(service);
  // Letters, digits, dashes and dots may continue a name: "ns/web" is not a part of "ns/web-1".
  const name = new RegExp(`(?<![\\w.-])${RegExp.escape(service)}(?![\\w.-])`);
  return rules.lines().filter((line) => name.test(line));
}
