import { outputOptions } from "../print/output.ts";
import {
  allNamespacesOption,
  namespaceOption,
  nodeFilterOption,
  parseFilter,
  serviceFilterOption,
  splitService,
} from "../query/filter-options.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { fieldSelectorOption } from "../query/selectors.ts";
import { endpointTable } from "../tables/endpoint-table.ts";
import { runList, watchOption } from "./list-command.ts";

/**
 * `kpng get endpoints`: lists the endpoints of the EndpointSlices that a watcher holds. `makeInspect` and
 * `makeInspectSource` add it. Separate from `runList`, which has what all lists have in common, and from `kpng get
 * view`, which shows the endpoints that a node uses.
 */
export const endpointsCommand: InspectCommand = {
  name: "endpoints",
  aliases: ["endpoint", "ep", "endpointslices", "endpointslice"],
  description: "endpoints of EndpointSlices",
  argument: "[pod-or-address...]",
  parseArgument: parseFilter,
  options: [
    namespaceOption,
    allNamespacesOption,
    serviceFilterOption,
    nodeFilterOption,
    fieldSelectorOption,
    watchOption,
    ...outputOptions,
  ],
  examples: `
Examples:
  COMMAND -n default --service web
  COMMAND 10.1.0.7 -o wide
  COMMAND --node n1 --watch
`,
  run: runList({
    noun: "endpoint",
    table: endpointTable,
    filterOf: (endpoint = "", options) => ({ ...splitService(options), node: String(options.node), endpoint }),
    list: (client, request) => client.listEndpoints(request),
    watch: (client, filter, call) => client.watchEndpoints(filter, call),
    rowsOf: ({ endpoints }) => endpoints,
    keyOf: ({ namespace, service, slice, addresses: [first = ""] }) => `${namespace}/${service}/${slice}/${first}`,
  }),
};
