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
    const rows = new Map<string, { readonly metric: ProgramMetric; readonly groups: string[] }>();
    for (const name of names) {
      const metrics = groups.get(name);
      if (metrics === undefined) throw new Error(`no group of metrics is called "${name}"`);
      for (const metric of metrics) {
        if (everywhere.has(metric.name)) continue;
        const row = rows.get(metric.name);
        if (row === undefined) rows.set(metric.name, { metric, groups: [name] });
        else row.groups.push(name);
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

function formatLabel([label, values]: readonly [string, readonly string[]]): string {
  return values.length === 0 ? label : `${label}: ${values.join(", ")}`;
}
