import { parseNodeName } from "@kpng/process/options.ts";
import { outputOptions, printRows, readOutputOptions } from "../print/output.ts";
import {
  allNamespacesOption,
  namespaceOption,
  parseFilter,
  readProxyName,
  serviceFilterOption,
  splitService,
} from "../query/filter-options.ts";
import { inspectClient, readNodeEndpoints } from "../query/inspect-client.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { fieldSelectorOption, RowSelection } from "../query/selectors.ts";
import { decisionTable } from "../tables/decision-table.ts";
import { warnEmpty } from "./list-command.ts";

/**
 * `kpng get view`: lists every endpoint as a node uses it. The view is what the watcher sends to that node; the rows
 * also show endpoints that it does not use, with the reason. `makeInspect` and `makeInspectSource` add it. Separate
 * from `runList`, which makes the other lists, because its rows cannot be watched.
 */
export const viewCommand: InspectCommand = {
  name: "view",
  description: "every endpoint as a node uses it, with the reason",
  argument: "<node>",
  parseArgument: parseNodeName,
  options: [
    namespaceOption,
    allNamespacesOption,
    serviceFilterOption,
    { flags: "--endpoint <pod-or-address>", description: "only this endpoint", default: "", parse: parseFilter },
    { flags: "--unused", description: "only endpoints that the node does not use" },
    fieldSelectorOption,
    ...outputOptions,
  ],
  examples: `
Examples:
  # why does n1 not use pod web-2?
  COMMAND n1 --endpoint web-2

  COMMAND n1 --unused -n default
`,
  run: async (transport, [nodeName = ""], options) => {
    const selection = new RowSelection(decisionTable.schema, options);
    const all = await readNodeEndpoints(inspectClient(transport), {
      ...splitService(options),
      nodeName,
      serviceProxyName: readProxyName(options),
      endpoint: String(options.endpoint),
      onlyUnused: options.unused === true,
    });
    const rows = selection.keep(all);
    printRows(decisionTable, rows, await readOutputOptions(options));
    if (rows.length === 0) warnEmpty("endpoint");
  },
};
