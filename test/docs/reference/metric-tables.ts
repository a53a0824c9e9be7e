import { type BlockWriter, markdownTable } from "./fill-blocks.ts";
import { metricGroups, metricsOf, type ProgramMetric } from "./program-metrics.ts";

/** Returns the writer of the tables of metrics; its argument is a group: "watcher". */
export async function makeMetricTables(): Promise<BlockWriter> {
  const groups = new Map<string, readonly ProgramMetric[]>();
  for (const group of metricGroups) groups.set(group, await metricsOf(group));
  return (group) => {
    const metrics = groups.get(group);
    if (metrics === undefined) throw new Error(`no group of metrics is called "${group}"`);
    const everywhere = new Set(group === "process" ? [] : groups.get("process")?.map(({ name }) => name));
    const own = metrics.filter(({ name }) => !everywhere.has(name));
    const rows = own.map(({ name, type, labels, help }) => [
      `\`${name}\``,
      type,
      [...labels].map(formatLabel).join("; "),
      help.replace(/\.$/, ""),
    ]);
    return markdownTable(["Metric", "Type", "Labels", "Description"], rows);
  };
}

function formatLabel([label, values]: readonly [string, readonly string[]]): string {
  return values.length === 0 ? label : `${label}: ${values.join(", ")}`;
}
