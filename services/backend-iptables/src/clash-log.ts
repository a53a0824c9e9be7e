import type { Log } from "@kpng/process/log.ts";
import type { Clash } from "@kpng/service-plan/frontend-claims.ts";

/** Says which Services have the same address and port, or the same node port: each once, and again only after it was gone. */
export class ClashLog {
  readonly #log: Log;
  #told: ReadonlySet<string> = new Set();

  constructor(log: Log) {
    this.#log = log;
  }

  /** Takes all that there are now. */
  tell(clashes: readonly Clash[]): void {
    const now = new Set<string>();
    for (const { frontend, served, shadowed } of clashes) {
      const key = `${frontend} ${served} ${shadowed}`;
      // A node port clashes in both families.
      if (now.has(key)) continue;
      now.add(key);
      if (this.#told.has(key)) continue;
      this.#log.error("two Services have the same frontend, and one of them gets nothing", {
        frontend,
        served,
        shadowed,
      });
    }
    this.#told = now;
  }
}
