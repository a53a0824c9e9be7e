import type { Change } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import type { Node } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { GetStatusResponse } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ApplyState, ApplyStateSchema, SubscriberKind } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { parsePositiveDurationMs, parseWholeNumber } from "@kpng/process/options.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { formatAge, formatCount, formatEnum, timestampMs } from "./print/format.ts";
import { formatTable } from "./print/table.ts";
import { inspectClient } from "./query/inspect-client.ts";
import type { InspectCommand } from "./query/inspect-command.ts";
import { changeTable } from "./tables/change-table.ts";
import { nodeTable } from "./tables/node-table.ts";

/** Rows of each table. */
const rowCount = 10;

export const topCommand: InspectCommand = {
  name: "top",
  description: "the watcher, live: how many nodes are up to date, who is not, what changed last",
  options: [
    {
      flags: "--interval <duration>",
      description: "time between two looks",
      default: 2_000,
      parse: parsePositiveDurationMs,
    },
    {
      flags: "--count <count>",
      description: "end after so many looks (default: never)",
      default: 0,
      parse: parseWholeNumber("--count", 0, 1_000_000_000),
    },
  ],
  examples: `
On a terminal each look takes the place of the one before; anywhere else they follow each other.

Examples:
  COMMAND
  COMMAND --interval 10s
  COMMAND --count 1
`,
  run: async (transport, _word, options, signal) => {
    const client = inspectClient(transport);
    const { isTTY = false, rows: height } = process.stdout;
    const count = Number(options.count);
    let before: GetStatusResponse | undefined;
    for (let looks = 1; !signal.aborted; looks += 1) {
      const status = await client.getStatus({});
      const states = [ApplyState.BEHIND, ApplyState.FAILING, ApplyState.ABSENT];
      const [nodes, changes] = status.isSynced
        ? await Promise.all([
            client.listNodes({ states, pageSize: rowCount }).then((page) => page.nodes),
            client.listChanges({ pageSize: rowCount }).then((page) => page.changes),
          ])
        : [[], []];
      const text = formatTop(status, before, nodes, changes);
      // Home, then each line to its end, then all below: nothing flickers, and nothing is kept of what scrolled by.
      if (isTTY) process.stdout.write(`\u001b[H${toScreen(text, height)}\u001b[J`);
      else process.stdout.write(`${looks === 1 ? "" : "\n"}${text}`);
      before = status;
      if (looks === count) return;
      await waitMs(Number(options.interval), signal);
    }
  },
};

/** Pure but for the ages, which are up to now. */
function formatTop(
  status: GetStatusResponse,
  before: GetStatusResponse | undefined,
  nodes: readonly Node[],
  changes: readonly Change[],
): string {
  const streams = status.subscribers.map(({ kind, state, count }) => {
    const what = kind === SubscriberKind.RELAY ? " (relay)" : "";
    return `${count} ${formatEnum(ApplyStateSchema, state)}${what}`;
  });
  const lines = [
    `revision   ${status.revision}  ${status.isSynced ? "synced" : `waiting for ${status.missingKinds.join(", ")}`}  ` +
      `up ${formatAge(status.startedAt)}${formatRate(status, before)}`,
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
      : `\nNot up to date${nodes.length < rowCount ? "" : `, the first ${rowCount}`}:\n${formatTable(
          nodeTable.columns.filter(({ isWide }) => isWide !== true),
          nodes,
          true,
        )}`,
    changes.length === 0
      ? ""
      : `\nLast changes:\n${formatTable(
          changeTable.columns.filter(({ isWide }) => isWide !== true),
          changes,
          true,
        )}`,
  ];
  return `${lines.join("\n")}\n${tables.join("")}`;
}

/** Revisions a second since the look before. */
function formatRate(status: GetStatusResponse, before: GetStatusResponse | undefined): string {
  if (before?.storedAt === undefined || status.storedAt === undefined) return "";
  if (before.instance !== status.instance) return "  (restarted)";
  const seconds = (timestampMs(status.storedAt) - timestampMs(before.storedAt)) / 1_000;
  const revisions = Number(status.revision - before.revision);
  return `  ${seconds <= 0 ? "0" : (revisions / seconds).toFixed(1)} revisions/s`;
}

/** As many lines as the terminal has, each cleared to its end; all where it does not say how many it has. */
function toScreen(text: string, height: number | undefined): string {
  const lines = text.trimEnd().split("\n");
  return lines
    .slice(0, height ? Math.max(1, height - 1) : lines.length)
    .map((line) => `${line}\u001b[K\n`)
    .join("");
}
