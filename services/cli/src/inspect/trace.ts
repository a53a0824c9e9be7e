import { type Change, ChangeSchema } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { parseWholeNumber } from "@kpng/process/options.ts";
import { inspectClient } from "./client.ts";
import type { ClientCommand } from "./client-command.ts";
import { limitOption, namespaceOption, splitName } from "./get.ts";
import { outputOptions, printRows, readOutputOptions } from "./output.ts";
import { formatWaterfall } from "./waterfall.ts";

export const traceCommand: ClientCommand = {
  name: "trace",
  description: "the way of the last changes to the nodes, stage by stage",
  words: "[service]",
  options: [
    namespaceOption,
    { ...limitOption, default: 3 },
    {
      flags: "--since <revision>",
      description: "only changes of this revision and later",
      default: 0,
      parse: parseWholeNumber("--since", 0, Number.MAX_SAFE_INTEGER),
    },
    { flags: "-w, --watch", description: "go on with changes as they reach their last node" },
    ...outputOptions,
  ],
  examples: `
Stages: trigger, from the cause to the watcher's receipt (whole seconds); store, until the store has it; send, until it is
handed to the connection; transit, there and back; wait, until the node's sync began; render; commit.

Examples:
  COMMAND default/web
  COMMAND web -n default --limit 10
  COMMAND --watch
`,
  run: async (transport, word, options, signal) => {
    const client = inspectClient(transport);
    const output = readOutputOptions(options);
    const { namespace, name: service } = splitName(word, options);
    const sinceRevision = BigInt(Number(options.since));
    const print = (change: Change): void => {
      if (output.format === "table" || output.format === "wide") {
        output.write(`${formatWaterfall(change, output.hasHeaders)}\n`);
      } else printRows({ schema: ChangeSchema, columns: [] }, [change], output);
    };
    if (options.watch !== true) {
      const page = { namespace, service, sinceRevision, pageSize: Number(options.limit) };
      const { changes } = await client.listChanges(page);
      const shown = changes.filter(({ isFirstList }) => !isFirstList).reverse();
      if (output.format === "json") printRows({ schema: ChangeSchema, columns: [] }, shown, output);
      else shown.forEach(print);
      if (shown.length === 0) process.stderr.write("nothing has changed since the watcher's start\n");
      return;
    }
    let isOld = sinceRevision === 0n;
    const finished = new Set<bigint>();
    for await (const { changes, isComplete } of client.watchChanges(
      { namespace, service, sinceRevision },
      { signal },
    )) {
      for (const change of changes) {
        if (isOld || isPending(change)) finished.delete(change.revision);
        else if (!finished.has(change.revision)) print(change);
        if (isOld || !isPending(change)) finished.add(change.revision);
      }
      isOld &&= !isComplete;
      // The watcher forgets as many, too.
      for (const revision of finished) if (finished.size > 1_000) finished.delete(revision);
    }
  },
};

/** True while somebody who was told has neither applied it nor gone. */
function isPending({ toldCount, appliedCount, lostCount, isFirstList }: Change): boolean {
  return isFirstList || toldCount === 0 || appliedCount + lostCount < toldCount;
}
