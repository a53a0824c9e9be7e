import type { Log } from "@kpng/process/log.ts";
import type { Clash, FrontendId } from "@kpng/service-plan/frontend-claims.ts";
import { Gauge, type Registry } from "prom-client";

/** Services with a series of their own: users who may create Services decide how many there are. */
const maxServices = 20;

/**
 * Reports Services that claim a frontend (address, port and protocol) of another one: each pair of Services is logged
 * once, and again if it returns after it was resolved; the gauge has what is claimed in vain now. `RuleSets` reports
 * all clashes after each sync.
 */
export class ClashReport {
  readonly #log: Log;
  readonly #gauge: Gauge<"service">;
  #reported: ReadonlySet<string> = new Set();

  constructor(log: Log, registry: Registry | undefined) {
    this.#log = log;
    this.#gauge = new Gauge({
      name: "kpng_backend_refused_claims",
      help: "Addresses with port, and node ports, that a Service claims and another one has; others: all Services but the 20 with most",
      labelNames: ["service"] as const,
      registers: registry === undefined ? [] : [registry],
    });
    this.#gauge.set({ service: "others" }, 0);
  }

  /** Reports the clashes that exist now. */
  report(clashes: readonly Clash[]): void {
    const pairs = new Map<string, Clash>();
    const claims = new Map<string, Set<FrontendId>>();
    for (const clash of clashes) {
      const { frontend, served, shadowed } = clash;
      const pair = `${served} ${shadowed}`;
      if (!pairs.has(pair)) pairs.set(pair, clash);
      // A node port clashes in both families.
      claims.set(shadowed, (claims.get(shadowed) ?? new Set()).add(frontend));
    }
    for (const [pair, { frontend, served, shadowed }] of pairs) {
      if (this.#reported.has(pair)) continue;
      this.#log.error("two Services have the same address and port: one keeps the place, the other gets no packets", {
        frontend,
        served,
        shadowed,
        claims: claims.get(shadowed)?.size ?? 0,
      });
    }
    this.#reported = new Set(pairs.keys());
    this.#count(claims);
  }

  #count(claims: ReadonlyMap<string, ReadonlySet<FrontendId>>): void {
    this.#gauge.reset();
    const most = [...claims].sort(([, a], [, b]) => b.size - a.size);
    for (const [service, { size }] of most.slice(0, maxServices)) this.#gauge.set({ service }, size);
    const others = most.slice(maxServices).reduce((sum, [, { size }]) => sum + size, 0);
    this.#gauge.set({ service: "others" }, others);
  }
}
