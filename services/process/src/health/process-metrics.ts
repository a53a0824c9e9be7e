import { collectDefaultMetrics, Gauge, type Registry } from "prom-client";
import packageJson from "../../package.json" with { type: "json" };
import type { Health } from "./health.ts";

/**
 * Metrics that prom-client keeps for old dashboards. They are gauges named like counters, which promtool rejects, and
 * only sum up other gauges.
 */
const misnamed = ["nodejs_active_resources_total", "nodejs_active_handles_total", "nodejs_active_requests_total"];

/**
 * Registers the metrics that every process has: CPU, memory, event loop, version, and the health of its parts.
 *
 * Must be called once per registry: by `statusServerTasks` or, in a service proxy, by `proxyObserveTasks`, which share
 * it.
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
