import { outputOptions } from "../print/output.ts";
import { nodeFilterOption } from "../query/filter-options.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { fieldSelectorOption } from "../query/selectors.ts";
import { subscriberTable } from "../tables/subscriber-table.ts";
import { applyFilterOf, applyFilterOptions, checkRevision } from "./apply-filter.ts";
import { runList, watchOption } from "./list-command.ts";

/**
 * `kpng get subscribers`: lists open streams. Each stream belongs to a subscriber: the backend of a node, or another
 * watcher. `makeInspect` adds it, and `makeInspectSource` for recordings only: other watchers in this process have no
 * subscribers. Separate from `runList`, which has what all lists have in common.
 */
export const subscribersCommand: InspectCommand = {
  name: "subscribers",
  aliases: ["subscriber", "sub"],
  description: "open streams of backends, relays and people",
  options: [nodeFilterOption, ...applyFilterOptions, fieldSelectorOption, watchOption, ...outputOptions],
  examples: `
Examples:
  COMMAND -o wide
  COMMAND --node n1
`,
  run: runList({
    noun: "subscriber",
    table: subscriberTable,
    filterOf: (_, options) => ({ node: String(options.node), ...applyFilterOf(options) }),
    check: checkRevision,
    list: (client, request) => client.listSubscribers(request),
    watch: (client, filter, call) => client.watchSubscribers(filter, call),
    rowsOf: ({ subscribers }) => subscribers,
    keyOf: ({ id }) => String(id),
  }),
};
