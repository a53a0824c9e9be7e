import { fromJson } from "@bufbuild/protobuf";
import {
  type Change,
  type ChangedObject,
  ChangeSchema,
  ObjectKind,
} from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { parseNonEmptyText, parseWholeNumber } from "@kpng/process/options.ts";
import { readRecording } from "@kpng/watcher/source/replay/recording.ts";
import { warnEmpty } from "./get/list-command.ts";
import { isTable, outputOptions, printMessages, readOutputOptions } from "./print/output.ts";
import { limitOption, namespaceOption, parseServiceName, splitName } from "./query/filter-options.ts";
import { type InspectClient, inspectClient } from "./query/inspect-client.ts";
import type { InspectCommand } from "./query/inspect-command.ts";
import { formatWaterfall } from "./waterfall.ts";

/**
 * `kpng trace`: prints how changes reached the nodes, and the duration of each stage. The changes come from a watcher
 * or, with `--recording`, from a file of `kpng record`. `makeInspect` adds it. Separate from `formatWaterfall`, which
 * formats one change, and from `kpng get changes`, which prints a row for each.
 */
export const traceCommand: InspectCommand = {
  name: "trace",
  description: "how long the latest changes took to reach the nodes, stage by stage",
  argument: "[service]",
  parseArgument: parseServiceName,
  options: [
    namespaceOption,
    { ...limitOption, default: 3 },
    {
      flags: "--since <revision>",
      description: "only changes from this revision on",
      default: 0,
      parse: parseWholeNumber("--since", 0, Number.MAX_SAFE_INTEGER),
    },
    { flags: "-w, --watch", description: "print further changes when their last node has applied them" },
    {
      flags: "--recording <file>",
      description: "read the changes from a recording of kpng record, not from a watcher",
      parse: parseNonEmptyText,
    },
    ...outputOptions,
  ],
  examples: `
Stages:
  trigger  from the cause of the change until the watcher received it (whole seconds)
  store    until the watcher's store had it
  send     until it was written to the connection
  transit  network round trip
  wait     until the sync of the node began
  render   until the desired rules were computed
  commit   until they were installed

Examples:
  COMMAND default/web
  COMMAND web -n default --limit 10
  COMMAND --watch
`,
  run: async (transport, [argument], options, signal) => {
    const client = inspectClient(transport);
    const output = await readOutputOptions(options);
    const { namespace, name: service } = splitName(argument, options);
    const filter = { namespace, service, sinceRevision: BigInt(Number(options.since)) };
    const print = (change: Change): void => {
      if (isTable(output)) output.write(`${formatWaterfall(change, output.hasHeaders)}\n`);
      else printMessages(ChangeSchema, [change], output);
    };
    if (options.watch === true && options.recording === undefined) {
      await watchApplied(client, filter, print, signal);
      return;
    }
    const limit = Number(options.limit);
    const changes =
      options.recording === undefined
        ? (await client.listChanges({ ...filter, pageSize: limit })).changes
        : recordedChanges(String(options.recording), filter).slice(0, limit);
    const shown = changes.filter(({ isFirstList }) => !isFirstList).reverse();
    if (isTable(output)) shown.forEach(print);
    else printMessages(ChangeSchema, shown, output);
    if (shown.length === 0) warnEmpty("change");
  },
};

interface ChangeFilter {
  readonly namespace: string;
  readonly service: string;
  readonly sinceRevision: bigint;
}

/**
 * Passes each change to `print` when its last node has applied it. With `sinceRevision` 0, only changes from now on.
 */
async function watchApplied(
  client: InspectClient,
  filter: ChangeFilter,
  print: (change: Change) => void,
  signal: AbortSignal,
): Promise<void> {
  let isOld = filter.sinceRevision === 0n;
  const finished = new Set<bigint>();
  for await (const { changes, isComplete } of client.watchChanges(filter, { signal })) {
    for (const change of changes) {
      const { revision } = change;
      if (!isOld && isPending(change)) {
        finished.delete(revision);
        continue;
      }
      if (!isOld && !finished.has(revision)) print(change);
      finished.add(revision);
    }
    isOld &&= !isComplete;
    // The watcher remembers as many.
    for (const revision of finished) if (finished.size > 1_000) finished.delete(revision);
  }
}

/** Reads the changes of a recording, newest first. Errors: BAD_INPUT if it is invalid. */
function recordedChanges(path: string, filter: ChangeFilter): readonly Change[] {
  const lines = readRecording(path).filter((line) => line.kind === "rows" && line.of === "changes");
  const rows = lines.flatMap((line) => (line.kind === "rows" ? line.rows : []));
  return rows
    .map((row) => fromJson(ChangeSchema, row))
    .filter(({ revision }) => revision >= filter.sinceRevision)
    .filter(({ objects }) => objects.some((object) => matches(object, filter)) || matchesAll(filter));
}

function matchesAll({ namespace, service }: ChangeFilter): boolean {
  return namespace === "" && service === "";
}

function matches({ kind, key }: ChangedObject, { namespace, service }: ChangeFilter): boolean {
  if (kind === ObjectKind.NODE) return false;
  const [ofNamespace, name] = key.split("/");
  return (namespace === "" || namespace === ofNamespace) && (service === "" || service === name);
}

/** True while a node that got the change has neither applied it nor disconnected. */
function isPending({ toldCount, appliedCount, lostCount, isFirstList }: Change): boolean {
  return isFirstList || toldCount === 0 || appliedCount + lostCount < toldCount;
}
