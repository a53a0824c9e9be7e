import { familyLabels } from "@kpng/backend-kit/observe/family-labels.ts";
import type { Family } from "@kpng/model/address.ts";
import { Counter, Gauge, type Registry } from "prom-client";
import type { Difference } from "./difference.ts";

/**
 * Metrics of shadow mode. `shadowTask` updates them after each comparison. Reports for people are formatted by
 * `format-report.ts`.
 */
export interface ShadowMetrics {
  readonly looks: Counter<"result">;
  /** Takes the differences that are reported now, of all families. */
  set(family: Family, told: readonly Difference[]): void;
}

/** Registers the metrics; call it once for each registry. */
export function createShadowMetrics(registry: Registry): ShadowMetrics {
  const registers = [registry];
  const differences = new Gauge({
    name: "kpng_shadow_differences",
    help: "Packets that kube-proxy's rules and ours treat in different ways; of shadow mode",
    labelNames: ["ip_family"] as const,
    registers,
  });
  const looks = new Counter({
    name: "kpng_shadow_looks_total",
    help: "Comparisons of kube-proxy's rules with ours by result; of shadow mode",
    labelNames: ["result"] as const,
    registers,
  });
  for (const result of ["ok", "failed"]) looks.inc({ result }, 0);
  return {
    looks,
    set: (family, told) =>
      differences.set(
        { ip_family: familyLabels[family] },
        told.filter((difference) => difference.family === family).length,
      ),
  };
}
