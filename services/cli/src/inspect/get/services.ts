import { outputOptions } from "../print/output.ts";
import { allNamespacesOption, namespaceOption, parseServiceName, splitName } from "../query/filter-options.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { fieldSelectorOption, labelSelectorOption } from "../query/selectors.ts";
import { serviceTable } from "../tables/service-table.ts";
import { runList, watchOption } from "./list-command.ts";

/**
 * `kpng get services`: lists Services. Each row shows a Service that the watcher holds and the number of its endpoints.
 * `makeInspect` and `makeInspectSource` add it. Separate from `runList`, which has what all lists have in common.
 */
export const servicesCommand: InspectCommand = {
  name: "services",
  aliases: ["service", "svc"],
  description: "Services, with the number of their ready endpoints",
  argument: "[name...]",
  parseArgument: parseServiceName,
  options: [
    namespaceOption,
    allNamespacesOption,
    labelSelectorOption,
    fieldSelectorOption,
    watchOption,
    ...outputOptions,
  ],
  examples: `
Examples:
  COMMAND -n default -l app=web
  COMMAND default/web default/db -o yaml
`,
  run: runList({
    noun: "Service",
    table: serviceTable,
    filterOf: splitName,
    list: (client, request) => client.listServices(request),
    watch: (client, filter, call) => client.watchServices(filter, call),
    rowsOf: ({ services }) => services,
    keyOf: ({ namespace, name }) => `${namespace}/${name}`,
  }),
};
