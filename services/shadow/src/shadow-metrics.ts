import { familyLabels } from "@kpng/backend-kit/observe/family-labels.ts";
import type { Family } from "@kpng/model/address.ts";
import { Counter, Gauge, type Registry } from "prom-client";
import type { Difference } from "./difference.ts";

/**
 * Metrics of shadow mode. `shadowTask` updates them after each comparison. Separate from it, because the generated
 * reference of the metrics registers them too.
 */
export interface ShadowMetrics {
  readonly looks: Counter<"result">;
  /** Sets the number of differences of a family. `reported` are those of all families. */
  set(family: Family, reported: readonly Difference[]): void;
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
    set: (family, reported) =>
      differences.set(
        { ip_family: familyLabels[family] },
        reported.filter((difference) => difference.family === family).length,
      ),
  };
}
