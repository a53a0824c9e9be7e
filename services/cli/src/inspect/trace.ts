import { fromJson } from "@bufbuild/protobuf";
import {
  type Change,
  type ChangedObject,
  ChangeSchema,
  ObjectKind,
} from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { parseSomeText, parseWholeNumber } from "@kpng/process/options.ts";
import { readRecording } from "@kpng/watcher/source/replay/read-recording.ts";
import { outputOptions, printRows, readOutputOptions } from "./print/output.ts";
import { limitOption, namespaceOption, parseServiceName, splitName } from "./query/filter-options.ts";
import { inspectClient } from "./query/inspect-client.ts";
import type { InspectCommand } from "./query/inspect-command.ts";
import { formatWaterfall } from "./waterfall.ts";

export const traceCommand: InspectCommand = {
  name: "trace",
  description: "the way of the last changes to the nodes, stage by stage",
  argument: "[service]",
  parseArgument: parseServiceName,
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
    {
      flags: "--recording <file>",
      description: "of what kpng record has written, and not of a watcher",
      parse: parseSomeText,
    },
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
    if (options.watch !== true || options.recording !== undefined) {
      const limit = Number(options.limit);
      const changes =
        options.recording === undefined
          ? (await client.listChanges({ namespace, service, sinceRevision, pageSize: limit })).changes
          : recordedChanges(String(options.recording), namespace, service, sinceRevision).slice(0, limit);
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

/** The newest first. Errors: BAD_INPUT. */
function recordedChanges(path: string, namespace: string, service: string, since: bigint): readonly Change[] {
  const lines = readRecording(path).filter((line) => line.kind === "rows" && line.of === "changes");
  const rows = lines.flatMap((line) => (line.kind === "rows" ? line.rows : []));
  return rows
    .map((row) => fromJson(ChangeSchema, row))
    .filter(({ revision }) => revision >= since)
    .filter(
      ({ objects }) => (namespace === "" && service === "") || objects.some((one) => isOf(one, namespace, service)),
    );
}

function isOf({ kind, key }: ChangedObject, namespace: string, service: string): boolean {
  if (kind === ObjectKind.NODE) return false;
  const [ofNamespace, name] = key.split("/");
  return (namespace === "" || namespace === ofNamespace) && (service === "" || service === name);
}

/** True while somebody who was told has neither applied it nor gone. */
function isPending({ toldCount, appliedCount, lostCount, isFirstList }: Change): boolean {
  return isFirstList || toldCount === 0 || appliedCount + lostCount < toldCount;
}
