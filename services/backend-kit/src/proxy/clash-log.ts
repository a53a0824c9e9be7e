import type { Log } from "@kpng/process/log.ts";
import type { Clash } from "@kpng/service-plan/frontend-claims.ts";

/** Logs Services that claim the same frontend: each clash once, and again only after it had disappeared. */
export class ClashLog {
  readonly #log: Log;
  #reported: ReadonlySet<string> = new Set();

  constructor(log: Log) {
    this.#log = log;
  }

  /** Takes all clashes that exist now. */
  report(clashes: readonly Clash[]): void {
    const now = new Set<string>();
    for (const { frontend, served, shadowed } of clashes) {
      const key = `${frontend} ${served} ${shadowed}`;
      // A node port clashes in both families.
      if (now.has(key)) continue;
      now.add(key);
      if (this.#reported.has(key)) continue;
      const fields = { frontend, served, shadowed };
      this.#log.error("two Services have the same frontend, and one of them gets nothing", fields);
    }
    this.#reported = now;
  }
}
