import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { Counter, Gauge, type Registry } from "prom-client";
import type { Store } from "./store.ts";

/**
 * Reports the events of a store's `Currency` as log lines, health and metrics: whether the state of the store is known
 * to be as new as that of the source.
 *
 * The command line calls it once at start, for the source of a command such as `kpng kube to-api`. Separate from the
 * store, which has no log and no metrics of its own.
 */
export function observeCurrency({ currency }: Store, { log, health, metrics }: CurrencyReports): void {
  const registers = [metrics];
  new Gauge({
    name: "kpng_source_stale",
    help: "1 while the server of the source does not answer, so that the state may be out of date",
    registers,
    collect() {
      this.set(currency.staleReason === undefined ? 0 : 1);
    },
  });
  const checks = new Counter({
    name: "kpng_source_position_checks_total",
    help: "Checks of the state against the server of the source, made because a node has a newer state; covers: the watcher has that state now",
    labelNames: ["result"],
    registers,
  });
  for (const result of ["covers", "behind"]) checks.inc({ result }, 0);
  currency.observe((event) => {
    switch (event.kind) {
      case "stale": {
        const reason = `the state may be out of date: ${event.reason}`;
        // Nodes prefer other watchers, and still need this one if all are stale.
        health.set(healthPart, { isHealthy: false, isReady: true, reason });
        log.error("the source does not answer; the state may be out of date", { reason: event.reason });
        break;
      }
      case "fresh":
        health.setReady(healthPart);
        log.info("the source answers again");
        break;
      default:
        checks.inc({ result: event.covers ? "covers" : "behind" });
        log.info("checked the state of the source for a node that holds a newer one", { covers: event.covers });
    }
  });
}

interface CurrencyReports {
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
}

const healthPart = "source/current";
