import type { Log } from "@kpng/process/log.ts";
import type { Clash } from "@kpng/service-plan/frontend-claims.ts";

/**
 * Logs Services that have the same frontend (address, port and protocol), of which only one can have it. Each clash
 * is logged once, and again if it returns after it was resolved. `RuleSets` reports all clashes after each sync.
 * Separate from `FamilyPlanner` and the rule sets, which find the clashes of one family: this class remembers what was
 * logged, for both.
 */
export class ClashLog {
  readonly #log: Log;
  #reported: ReadonlySet<string> = new Set();

  constructor(log: Log) {
    this.#log = log;
  }

  /** Logs the clashes that are new since the last call. `clashes` are all that exist now. */
  report(clashes: readonly Clash[]): void {
    const now = new Set<string>();
    for (const { frontend, served, shadowed } of clashes) {
      const key = `${frontend} ${served} ${shadowed}`;
      // A node port clashes in both families.
      if (now.has(key)) continue;
      now.add(key);
      if (this.#reported.has(key)) continue;
      const fields = { frontend, served, shadowed };
      this.#log.error(
        "two Services have the same address and port: one keeps the place, the other gets no packets",
        fields,
      );
    }
    this.#reported = now;
  }
}
