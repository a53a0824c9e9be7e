import { collectDefaultMetrics, Gauge, type Registry } from "prom-client";
import packageJson from "../../package.json" with { type: "json" };
import type { Health } from "./health.ts";

/**
 * What prom-client adds for dashboards of its older versions: sums of gauges that are there too, whose names end as those
 * of counters do, which promtool refuses.
 */
const misnamed = ["nodejs_active_resources_total", "nodejs_active_handles_total", "nodejs_active_requests_total"];

/**
 * Registers what every process says of itself: its CPU, memory, event loop, version, and the parts of its health.
 *
 * Once per registry.
 */
export function registerProcessMetrics(registry: Registry, health: Health): void {
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  for (const name of misnamed) registry.removeSingleMetric(name);
  new Gauge({
    name: "kpng_build_info",
    help: "1, with the version of kpng and of Node.js",
    labelNames: ["version", "nodejs"],
    registers,
  }).set({ version: packageJson.version, nodejs: process.version }, 1);
  registerHealth(registry, health);
}

function registerHealth(registry: Registry, health: Health): void {
  const labelNames = ["part"] as const;
  const gauge = (name: string, help: string, holds: (part: { isHealthy: boolean; isReady: boolean }) => boolean) =>
    new Gauge({
      name,
      help,
      labelNames,
      registers: [registry],
      collect() {
        for (const [part, state] of health.parts) this.set({ part }, holds(state) ? 1 : 0);
      },
    });
  gauge("kpng_part_healthy", "1 unless this part of the process keeps failing at its work", (part) => part.isHealthy);
  gauge("kpng_part_ready", "1 once this part of the process has what it needs to serve", (part) => part.isReady);
}
