import { outputOptions } from "../print/output.ts";
import {
  allNamespacesOption,
  limitOption,
  namespaceOption,
  serviceFilterOption,
  splitService,
} from "../query/filter-options.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { fieldSelectorOption } from "../query/selectors.ts";
import { changeTable } from "../tables/change-table.ts";
import { runList, watchOption } from "./list-command.ts";

/**
 * `kpng get changes`: lists recent changes. A change is one revision of the cluster state, with how many nodes applied
 * it and how long that took. `makeInspect` and `makeInspectSource` add it. Separate from `runList`, which has what all
 * lists have in common, and from `kpng trace`, which prints the stages of each change.
 */
export const changesCommand: InspectCommand = {
  name: "changes",
  aliases: ["change"],
  description: "recent changes, newest first, and how long the nodes took to apply them",
  options: [
    namespaceOption,
    allNamespacesOption,
    serviceFilterOption,
    fieldSelectorOption,
    limitOption,
    watchOption,
    ...outputOptions,
  ],
  examples: `
Examples:
  COMMAND
  COMMAND -n default --service web --watch
`,
  run: runList({
    noun: "change",
    table: changeTable,
    filterOf: (_, options) => ({ ...splitService(options), pageSize: Number(options.limit) }),
    // One page, whose size is the limit.
    list: async (client, request) => ({ ...(await client.listChanges(request)), nextPageToken: "" }),
    watch: (client, { namespace, service }, call) => client.watchChanges({ namespace, service }, call),
    rowsOf: ({ changes }) => changes,
    keyOf: ({ revision }) => String(revision),
  }),
};
