import type { Change } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import type { Node } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { GetStatusResponse } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import {
  ApplyState,
  ApplyStateSchema,
  SubscriberKind,
  SubscriberKindSchema,
} from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { changeTable } from "./changes.ts";
import { type InspectCommand, inspectClient, keepAsking } from "./client.ts";
import { nodeTable } from "./nodes.ts";
import { formatAge, formatCount, formatEnum, formatTable, terminalText, timestampMs } from "./print/text.ts";

const intervalMs = 2_000;

/**
 * `kpng top`: prints the totals, the nodes that are behind and the newest changes of a watcher; on a terminal every two
 * seconds, like top(1), elsewhere once.
 */
export const topCommand: InspectCommand = {
  name: "top",
  description: "live view of a watcher: its streams, the nodes that are not up to date, and the latest changes",
  options: [],
  examples: `
Updates every 2 s on a terminal; elsewhere it prints one update and ends.

Examples:
  COMMAND
`,
  run: async (transport, _words, _options, signal) => {
    const client = inspectClient(transport);
    let previous: GetStatusResponse | undefined;
    await keepAsking(signal, async (answered) => {
      for (; !signal.aborted; await waitMs(intervalMs, signal)) {
        const status = await client.getStatus({});
        answered();
        const states = [ApplyState.BEHIND, ApplyState.FAILING, ApplyState.ABSENT];
        const [nodes, changes] = status.isSynced
          ? await Promise.all([
              client.listNodes({ states, pageSize: rowCount }).then((page) => page.nodes),
              client.listChanges({ pageSize: rowCount }).then((page) => page.changes),
            ])
          : [[], []];
        printScreen(formatTop(status, previous, nodes, changes));
        previous = status;
        if (!process.stdout.isTTY) return true;
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

/** Prints one update. On a terminal it replaces the previous one, and is cut to the height of the screen. */
function printScreen(text: string): void {
  const { isTTY = false, rows: height } = process.stdout;
  const safe = terminalText(text);
  if (!isTTY) {
    process.stdout.write(safe);
    return;
  }
  const lines = safe.trimEnd().split("\n");
  const shown = lines.slice(0, height ? Math.max(1, height - 1) : lines.length);
  // Overwrites the screen in place, without clearing it first: that would flicker and fill the scrollback.
  process.stdout.write(`\u001b[H${shown.map((line) => `${line}\u001b[K\n`).join("")}\u001b[J`);
}
