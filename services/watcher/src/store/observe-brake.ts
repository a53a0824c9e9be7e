import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { Counter, Gauge, type Registry } from "prom-client";
import type { ReleaseReason } from "./list-brake.ts";
import type { Store } from "./store.ts";

/**
 * Reports held deletions of a store as log lines, health and metrics. The command line calls it once at start, for the
 * source of a command such as `kpng kube to-api`. Separate from `ListBrake`, which holds the deletions and has no log
 * and no metrics.
 */
export function observeBrake({ brake }: Store, { log, health, metrics }: BrakeReports): void {
  const registers = [metrics];
  new Gauge({
    name: "kpng_brake_held_objects",
    help: "Objects that the newest list lacks and whose deletion the brake holds",
    labelNames: ["kind"],
    registers,
    collect() {
      for (const kind of kinds) this.set({ kind }, brake.held.get(kind)?.keys.size ?? 0);
    },
  });
  const holds = new Counter({
    name: "kpng_brake_holds_total",
    help: "Times the brake began to hold deletions",
    labelNames: ["kind"],
    registers,
  });
  const releases = new Counter({
    name: "kpng_brake_releases_total",
    help: "Times the brake stopped holding deletions, by reason",
    labelNames: ["kind", "reason"],
    registers,
  });
  for (const kind of kinds) {
    holds.inc({ kind }, 0);
    for (const reason of reasons) releases.inc({ kind, reason }, 0);
  }
  brake.observe((event) => {
    const { kind } = event;
    if (event.verb === "released") {
      releases.inc({ kind, reason: event.reason });
      health.setReady(`brake/${kind}`);
      log.info("no longer holding deletions", { kind, reason: event.reason });
      return;
    }
    holds.inc({ kind });
    const { keys, currentCount } = event.held;
    const reason = `a list would delete ${keys.size} of ${currentCount} ${kind}; waiting for a later list to confirm it, or for kpng release`;
    const isReady = true;
    health.set(`brake/${kind}`, { isHealthy: false, isReady, reason });
    log.error("deletions held back: a list would delete most objects", {
      kind,
      reason,
      remainingMs: Math.round(brake.remainingMs(event.held)),
    });
  });
}

interface BrakeReports {
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
}

const kinds = ["services", "slices", "nodes"] as const;
const reasons = ["confirmed", "expired", "operator", "refuted"] as const satisfies ReleaseReason[];
