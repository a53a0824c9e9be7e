import { parseNodeName } from "@kpng/process/options.ts";
import { outputOptions, printRows, readOutputOptions } from "../print/output.ts";
import {
  namespaceOption,
  parseFilter,
  readProxyName,
  serviceFilterOption,
  splitService,
} from "../query/filter-options.ts";
import { inspectClient, pageSize, readPages, unknownNode } from "../query/inspect-client.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { decisionTable } from "../tables/decision-table.ts";

/** `kpng get view`. */
export const viewCommand: InspectCommand = {
  name: "view",
  description: "what a node does with each endpoint, and why",
  argument: "<node>",
  parseArgument: parseNodeName,
  options: [
    namespaceOption,
    serviceFilterOption,
    { flags: "--endpoint <pod-or-address>", description: "only of this endpoint", default: "", parse: parseFilter },
    { flags: "--unused", description: "only endpoints that the node does not use" },
    ...outputOptions,
  ],
  examples: `
Examples:
  # why does n1 not send to pod web-2?
  COMMAND n1 --endpoint web-2

  COMMAND n1 --unused -n default
`,
  run: async (transport, nodeName = "", options) => {
    const client = inspectClient(transport);
    const filter = {
      ...splitService(options),
      nodeName,
      serviceProxyName: readProxyName(options),
      endpoint: String(options.endpoint),
      onlyUnused: options.unused === true,
    };
    const rows = await readPages(
      (pageToken) => client.listNodeEndpoints({ ...filter, pageSize, pageToken }),
      (page) => {
        if (!page.isNodeKnown) process.stderr.write(`${unknownNode(nodeName)}\n`);
        return page.decisions;
      },
    );
    printRows(decisionTable, rows, readOutputOptions(options));
    if (rows.length === 0) process.stderr.write("nothing found\n");
  },
};
