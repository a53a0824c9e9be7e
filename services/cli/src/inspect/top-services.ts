import type { ListTrafficResponse } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { parseWholeNumber } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { formatCount } from "./print/format.ts";
import { isTable, outputOptions, printRows, readOutputOptions } from "./print/output.ts";
import { printScreen } from "./print/screen.ts";
import { formatTable } from "./print/table.ts";
import {
  allNamespacesOption,
  namespaceOption,
  nodeFilterOption,
  parseServiceName,
  splitName,
} from "./query/filter-options.ts";
import { inspectClient } from "./query/inspect-client.ts";
import type { InspectCommand } from "./query/inspect-command.ts";
import { keepAsking } from "./query/keep-asking.ts";
import { trafficByNodeTable, trafficTable } from "./tables/traffic-table.ts";
import { updateOptions } from "./top.ts";

/**
 * `kpng top services`: the Services with the most traffic, as the nodes report it; with a name, the nodes of one
 * Service. `makeInspect` adds it below `kpng top`. Separate from `top`, which shows the state of the watcher.
 */
export const topServicesCommand: InspectCommand = {
  name: "services",
  aliases: ["service", "svc"],
  description: "Services with the most traffic; needs backends with --service-traffic",
  argument: "[name]",
  parseArgument: parseServiceName,
  options: [
    namespaceOption,
    allNamespacesOption,
    nodeFilterOption,
    {
      flags: "--limit <count>",
      description: "maximum number of rows, the busiest first",
      default: 20,
      parse: parseWholeNumber("--limit", 1, 1_000),
    },
    ...updateOptions,
    ...outputOptions,
  ],
  examples: `
Tables are updated until the command is interrupted; JSON and the other formats are printed once. The last row is the
sum of the other Services, if there are any: its namespace and name are "" in JSON.

Examples:
  COMMAND
  COMMAND --node n1 --count 1
  # on which nodes is this Service used?
  COMMAND shop/web
`,
  run: async (transport, [word], options, signal) => {
    const client = inspectClient(transport);
    const output = await readOutputOptions(options);
    const request = { ...splitName(word, options), node: String(options.node ?? ""), limit: Number(options.limit) };
    if (request.name !== "" && request.namespace === "")
      throw new ProcessError("BAD_OPTION", `give the namespace of "${word}": namespace/${word}, or --namespace`);
    const table = request.name === "" ? trafficTable : trafficByNodeTable;
    const count = isTable(output) && output.sortBy === undefined ? Number(options.count) : 1;
    let updates = 0;
    await keepAsking(signal, async (answered) => {
      for (; !signal.aborted; await waitMs(Number(options.interval), signal)) {
        const response = await client.listTraffic(request);
        answered();
        updates += 1;
        const rows = response.others === undefined ? response.traffic : [...response.traffic, response.others];
        if (!isTable(output) || output.sortBy !== undefined)
          printRows(table, output.format.kind === "name" ? response.traffic : rows, output);
        else
          printScreen(
            `${formatSummary(response)}${formatTable(table.columns, rows, output.hasHeaders)}`,
            updates === 1,
          );
        if (updates === count) return true;
      }
      return true;
    });
  },
};

/** Says how many nodes report, and what to do if none does. */
function formatSummary({ nodeCount, traffic }: ListTrafficResponse): string {
  if (nodeCount === 0) return "no node reports traffic: start its backend with --service-traffic\n";
  const empty = traffic.length === 0 ? "; no Service has had traffic" : "";
  return `${formatCount(nodeCount, "node")} ${nodeCount === 1 ? "reports" : "report"} traffic${empty}\n`;
}
