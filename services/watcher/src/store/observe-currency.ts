import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { Gauge, type Registry } from "prom-client";
import type { Store } from "./store.ts";

/** Reports as log lines, health and a metric whether the state of a store is known to be current. */
export function observeCurrency({ currency }: Store, { log, health, metrics }: CurrencyReports): void {
  const registers = [metrics];
  new Gauge({
    name: "kpng_source_stale",
    help: "1 while the state may be out of date: the server of the source does not answer, or is listed again",
    registers,
    collect() {
      this.set(currency.staleReason === undefined ? 0 : 1);
    },
  });
  currency.observe((event) => {
    if (event.kind === "stale") {
      const reason = `the state may be out of date: ${event.reason}`;
      // Nodes prefer other watchers, and still need this one if all are stale.
      health.set(healthPart, { isHealthy: false, isReady: true, reason });
      log.error("the state may be out of date", { reason: event.reason });
    } else {
      health.setReady(healthPart);
      log.info("the state is current again");
    }
  });
}

interface CurrencyReports {
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
}

const healthPart = "source/current";
