import type { Query } from "./panel.ts";

/** Chooses watchers. */
export const watcher = 'instance=~"$watcher"';
/** Chooses backends. */
export const node = 'instance=~"$node"';

/** Per second. */
export function rate(metric: string, selector: string, more = ""): string {
  return `rate(${metric}{${selector}${more}}[$__rate_interval])`;
}

export function quantile(share: number, metric: string, selector: string, by: string): string {
  return `histogram_quantile(${share}, sum by (${by}, le) (${rate(`${metric}_bucket`, selector)}))`;
}

/** Half of the measurements, and nearly all. */
export function spread(metric: string, selector: string, by = "instance"): readonly Query[] {
  return [
    { expr: quantile(0.5, metric, selector, by), legend: `{{${by}}} p50` },
    { expr: quantile(0.99, metric, selector, by), legend: `{{${by}}} p99` },
  ];
}

/** The gauge as it is, a line for each instance and what else is named. */
export function each(metric: string, selector: string, label?: string): Query {
  return { expr: `${metric}{${selector}}`, legend: label === undefined ? "{{instance}}" : `{{instance}} {{${label}}}` };
}

/** The nodes that stand out, of thousands. */
export function worst(expr: string, legend = "{{instance}}"): Query {
  return { expr: `topk(10, ${expr})`, legend };
}
