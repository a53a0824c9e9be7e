import { type BlockWriter, markdownTable } from "./fill-blocks.ts";
import { metricGroups, metricsOf, type ProgramMetric } from "./program-metrics.ts";

/**
 * Returns the writer of the tables of metrics. Its argument names groups: "watcher", or "kube, file, api" for one table
 * with a column of groups.
 */
export async function makeMetricTables(): Promise<BlockWriter> {
  const groups = new Map<string, readonly ProgramMetric[]>();
  for (const group of metricGroups) groups.set(group, await metricsOf(group));
  return (argument) => {
    const names = argument.split(", ");
    const everywhere = new Set(argument === "process" ? [] : groups.get("process")?.map(({ name }) => name));
    const rows = new Map<string, { readonly metric: ProgramMetric; readonly groups: readonly string[] }>();
    for (const name of names) {
      const metrics = groups.get(name);
      if (metrics === undefined) throw new Error(`no group of metrics is called "${name}"`);
      for (const metric of metrics) {
        if (everywhere.has(metric.name)) continue;
        const row = rows.get(metric.name);
        if (row === undefined) rows.set(metric.name, { metric, groups: [name] });
        else rows.set(metric.name, { metric: withLabelsOf(row.metric, metric), groups: [...row.groups, name] });
      }
    }
    const hasGroups = names.length > 1;
    return markdownTable(
      ["Metric", ...(hasGroups ? ["In"] : []), "Type", "Labels", "Description"],
      [...rows.values()].map(({ metric: { name, type, labels, help }, groups: of }) => [
        `\`${name}\``,
        ...(hasGroups ? [of.join(", ")] : []),
        type,
        [...labels].map(formatLabel).join("; "),
        help.replace(/\.$/, ""),
      ]),
    );
  };
}

/** Adds the values that labels of a metric have in another group. */
function withLabelsOf(metric: ProgramMetric, { labels }: ProgramMetric): ProgramMetric {
  const joined = Array.from(metric.labels, ([label, values]) => {
    return [label, [...new Set([...values, ...(labels.get(label) ?? [])])]] as const;
  });
  return { ...metric, labels: new Map(joined) };
}

/** A label with one known value is shown without it: there may be others. */
function formatLabel([label, values]: readonly [string, readonly string[]]): string {
  return values.length < 2 ? label : `${label}: ${values.join(", ")}`;
}
