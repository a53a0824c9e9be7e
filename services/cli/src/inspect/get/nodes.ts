import { outputOptions } from "../print/output.ts";
import { parseFilter } from "../query/filter-options.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { fieldSelectorOption, labelSelectorOption } from "../query/selectors.ts";
import { nodeTable } from "../tables/node-table.ts";
import { applyFilterOf, applyFilterOptions, checkRevision } from "./apply-filter.ts";
import { runList, watchOption } from "./list-command.ts";

/**
 * `kpng get nodes`: lists nodes. Each row shows a node of the cluster and what its backend has applied. `makeInspect`
 * and `makeInspectSource` add it. Separate from `runList`, which has what all lists have in common.
 */
export const nodesCommand: InspectCommand = {
  name: "nodes",
  aliases: ["node", "no"],
  description: "nodes, and the revision that each has applied",
  argument: "[name...]",
  parseArgument: parseFilter,
  options: [...applyFilterOptions, labelSelectorOption, fieldSelectorOption, watchOption, ...outputOptions],
  examples: `
Examples:
  # which nodes have not applied revision 1234?
  COMMAND --not-applied 1234

  # which nodes are not up to date?
  COMMAND --state behind,failing,absent --watch

  # the nodes of a zone
  COMMAND -l topology.kubernetes.io/zone=za

  # which backends follow a node that the cluster does not have, e.g. because of a wrong --node-name?
  COMMAND --state unknown
`,
  run: runList({
    noun: "node",
    table: nodeTable,
    filterOf: (name = "", options) => ({ name, ...applyFilterOf(options) }),
    check: checkRevision,
    list: (client, request) => client.listNodes(request),
    watch: (client, filter, call) => client.watchNodes(filter, call),
    rowsOf: ({ nodes }) => nodes,
    keyOf: ({ name }) => name,
  }),
};
