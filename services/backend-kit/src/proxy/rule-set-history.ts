import type { InspectedRules } from "../inspect/inspected-rules.ts";
import type { SyncMode } from "../types/sync-update.ts";
import type { RuleChange, RuleSet } from "./rule-set.ts";

/**
 * Records the changes of a rule set, which `kpng get rules` shows (`--inspect-socket`). `FamilyRules` has one and adds
 * each successful change. Separate from it, because nothing else depends on the history.
 */
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
      desired: desired.lines,
      actual: installed.lines,
      readAtMs: this.#readAtMs,
      lastTransaction: this.#lastTransaction,
      committedAtMs: this.#committedAtMs,
      drift: this.#drift,
      repairCount: this.#repairCount,
    };
  }
}
