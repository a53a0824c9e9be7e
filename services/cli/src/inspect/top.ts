import type { Change } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import type { Node } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { GetStatusResponse } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import {
  ApplyState,
  ApplyStateSchema,
  SubscriberKind,
  SubscriberKindSchema,
} from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { type OptionSpec, parsePositiveDurationMs, parseWholeNumber } from "@kpng/process/options.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { changeTable } from "./changes.ts";
import { nodeTable } from "./nodes.ts";
import { formatTable } from "./print/table.ts";
import { formatAge, formatCount, formatEnum, terminalText, timestampMs } from "./print/text.ts";
import { type InspectCommand, inspectClient, keepAsking } from "./query/client.ts";

/** When to update, and how often. */
const updateOptions: readonly OptionSpec[] = [
  {
    flags: "--interval <duration>",
    description: "time between two updates",
    default: 2_000,
    parse: parsePositiveDurationMs,
  },
  {
    flags: "--count <count>",
    description: "number of updates; 0 for no limit",
    default: 0,
    parse: parseWholeNumber("--count", 0, 1_000_000_000),
  },
];

/**
 * `kpng top`: prints the state of a watcher every few seconds. It shows the totals, the newest changes and the nodes
 * that are behind, like top(1) for processes.
 */
export const topCommand: InspectCommand = {
  name: "top",
  description: "live view of a watcher: its streams, the nodes that are not up to date, and the latest changes",
  options: updateOptions,
  examples: `
On a terminal an update replaces the previous one; elsewhere it is appended.

Examples:
  COMMAND
  COMMAND --interval 10s
  COMMAND --count 1
`,
  run: async (transport, _words, options, signal) => {
    const client = inspectClient(transport);
    const count = Number(options.count);
    let previous: GetStatusResponse | undefined;
    let updates = 0;
    await keepAsking(signal, async (answered) => {
      for (; !signal.aborted; await waitMs(Number(options.interval), signal)) {
        const status = await client.getStatus({});
        answered();
        updates += 1;
        const states = [ApplyState.BEHIND, ApplyState.FAILING, ApplyState.ABSENT];
        const [nodes, changes] = status.isSynced
          ? await Promise.all([
              client.listNodes({ states, pageSize: rowCount }).then((page) => page.nodes),
              client.listChanges({ pageSize: rowCount }).then((page) => page.changes),
            ])
          : [[], []];
        printScreen(formatTop(status, previous, nodes, changes), updates === 1);
        previous = status;
        if (updates === count) return true;
      }
      return true;
    });
  },
};

const rowCount = 10;

function formatTop(
  status: GetStatusResponse,
  previous: GetStatusResponse | undefined,
  nodes: readonly Node[],
  changes: readonly Change[],
): string {
  const streams = status.subscribers.map(({ kind, state, count }) => {
    const suffix = kind === SubscriberKind.NODE ? "" : ` (${formatEnum(SubscriberKindSchema, kind)})`;
    return `${count} ${formatEnum(ApplyStateSchema, state)}${suffix}`;
  });
  const lines = [
    `revision   ${status.revision}  ${status.isSynced ? "synced" : `waiting for ${status.missingKinds.join(", ")}`}  ` +
      `up ${formatAge(status.startedAt)}${formatRate(status, previous)}`,
    `cluster    ${[
      formatCount(status.serviceCount, "Service"),
      formatCount(status.endpointCount, "endpoint"),
      formatCount(status.sliceCount, "slice"),
      formatCount(status.nodeCount, "node"),
    ].join(", ")}`,
    `streams    ${streams.length === 0 ? "none" : streams.join(", ")}`,
  ];
  const tables = [
    nodes.length === 0
      ? ""
      : `\nNot up to date${nodes.length < rowCount ? "" : ` (first ${rowCount})`}:\n${formatTable(
          nodeTable.columns.filter(({ isWide }) => isWide !== true),
          nodes,
          true,
        )}`,
    changes.length === 0
      ? ""
      : `\nLatest changes:\n${formatTable(
          changeTable.columns.filter(({ isWide }) => isWide !== true),
          changes,
          true,
        )}`,
  ];
  return `${lines.join("\n")}\n${tables.join("")}`;
}

/** Formats the revisions per second since the previous update; "" for the first one. */
function formatRate(status: GetStatusResponse, previous: GetStatusResponse | undefined): string {
  if (previous?.storedAt === undefined || status.storedAt === undefined) return "";
  if (previous.instance !== status.instance) return "  (restarted)";
  const seconds = (timestampMs(status.storedAt) - timestampMs(previous.storedAt)) / 1_000;
  const revisions = Number(status.revision - previous.revision);
  return `  ${seconds <= 0 ? "0" : (revisions / seconds).toFixed(1)} revisions/s`;
}

/**
 * Prints one update of `kpng top`: on a terminal it replaces the previous one, elsewhere it is appended after an empty
 * line. `isFirst` is true for the first update.
 */
export function printScreen(text: string, isFirst: boolean): void {
  const { isTTY = false, rows: height } = process.stdout;
  const safe = terminalText(text);
  // Overwrites the screen in place, without clearing it first: that would flicker and fill the scrollback.
  if (isTTY) process.stdout.write(`\u001b[H${toScreen(safe, height)}\u001b[J`);
  else process.stdout.write(`${isFirst ? "" : "\n"}${safe}`);
}

/** Returns the lines that fit on the terminal, each with a code that clears the rest of the line. */
function toScreen(text: string, height: number | undefined): string {
  const lines = text.trimEnd().split("\n");
  return lines
    .slice(0, height ? Math.max(1, height - 1) : lines.length)
    .map((line) => `${line}\u001b[K\n`)
    .join("");
}
