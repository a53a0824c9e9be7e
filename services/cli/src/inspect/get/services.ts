import { outputOptions } from "../print/output.ts";
import { namespaceOption, parseServiceName, splitName } from "../query/filter-options.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { serviceTable } from "../tables/service-table.ts";
import { runList, watchOption } from "./list-command.ts";

/** `kpng get services`. */
export const servicesCommand: InspectCommand = {
  name: "services",
  aliases: ["service", "svc"],
  description: "what the watcher knows of Services, with how many of their endpoints are ready",
  argument: "[name]",
  parseArgument: parseServiceName,
  options: [namespaceOption, watchOption, ...outputOptions],
  examples: `
Examples:
  COMMAND -n default
  COMMAND default/web -o yaml
`,
  run: runList({
    kind: serviceTable,
    filterOf: splitName,
    list: (client, request) => client.listServices(request),
    watch: (client, filter, call) => client.watchServices(filter, call),
    rowsOf: ({ services }) => services,
  }),
};
