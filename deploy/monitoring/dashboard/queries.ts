import type { Query } from "./panel.ts";

/** Label matcher for the selected watchers. */
export const watcher = 'instance=~"$watcher"';
/** Label matcher for the selected nodes' backends. */
export const node = 'instance=~"$node"';

/** Rate per second. */
export function rate(metric: string, selector: string, more = ""): string {
  return `rate(${metric}{${selector}${more}}[$__rate_interval])`;
}

export function quantile(share: number, metric: string, selector: string, by: string): string {
  return `histogram_quantile(${share}, sum by (${by}, le) (${rate(`${metric}_bucket`, selector)}))`;
}

/** The median and the 99th percentile of a histogram. */
export function spread(metric: string, selector: string, by = "instance"): readonly Query[] {
  return [
    { expr: quantile(0.5, metric, selector, by), legend: `{{${by}}} p50` },
    { expr: quantile(0.99, metric, selector, by), legend: `{{${by}}} p99` },
  ];
}

/** A gauge, with one line for each instance and each value of `label`. */
export function each(metric: string, selector: string, label?: string): Query {
  return { expr: `${metric}{${selector}}`, legend: label === undefined ? "{{instance}}" : `{{instance}} {{${label}}}` };
}

/** The ten largest series. */
export function worst(expr: string, legend = "{{instance}}"): Query {
  return { expr: `topk(10, ${expr})`, legend };
}
