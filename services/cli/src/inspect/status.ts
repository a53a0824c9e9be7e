import type { Node } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { GetStatusResponse } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ApplyState, ApplyStateSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { changeTable } from "./changes.ts";
import { type InspectCommand, inspectClient, keepAsking } from "./client.ts";
import { findFindings, readWatcherState, type WatcherState } from "./findings.ts";
import { nodeTable } from "./nodes.ts";
import { formatAge, formatCount, formatEnum, formatSection, oneLine, terminalText, timestampMs } from "./print/text.ts";

/**
 * `kpng status`: one screen about a watcher: what it holds, how far its nodes are, which are slowest, what fails, and
 * where to look next.
 */
export const statusCommand: InspectCommand = {
  name: "status",
  description: "one screen: the watcher, its nodes by state, the slowest, errors, and what to do",
  options: [],
  examples: `
Examples:
  COMMAND
  COMMAND --api unix:///run/kpng/watcher.sock
`,
  run: async (transport) => {
    const client = inspectClient(transport);
    const state = await readWatcherState(client);
    process.stdout.write(terminalText(formatStatus(state, Date.now())));
  },
};

/** Maximum number of nodes and errors that are named. */
const maxNamed = 3;

/** Formats the screen. Ages are relative to `nowMs`. Pure. */
export function formatStatus(state: WatcherState, nowMs: number): string {
  const { status, nodes } = state;
  const findings = findFindings(state, { hasNodes: true, nowMs });
  const errors = findings.filter(({ severity }) => severity === "error").length;
  return formatLines([
    ...totals(status, nowMs),
    ["nodes", formatStates(nodes)],
    ...slowest(nodes, nowMs).map((text, index) => [index === 0 ? "slowest" : "", text] as const),
    ...failing(nodes).map((text, index) => [index === 0 ? "errors" : "", text] as const),
    [
      "findings",
      findings.length === 0
        ? "none"
        : `${formatCount(errors, "error")}, ${formatCount(findings.length - errors, "warning")}: run kpng analyze`,
    ],
  ]);
}

type Line = readonly [title: string, text: string];

function formatLines(lines: readonly Line[]): string {
  return lines.map(([title, text]) => `${title.padEnd(10)}${oneLine(text)}\n`).join("");
}

function totals(status: GetStatusResponse, nowMs: number): readonly Line[] {
  const version = status.version === "" ? "" : `version ${status.version}, `;
  const counts = [
    formatCount(status.serviceCount, "Service"),
    formatCount(status.endpointCount, "endpoint"),
    formatCount(status.sliceCount, "slice"),
    formatCount(status.nodeCount, "node"),
  ];
  return [
    [
      "watcher",
      `revision ${status.revision}, up ${formatAge(status.startedAt, nowMs)}, ${version}instance ${status.instance}`,
    ],
    ["source", status.isSynced ? "listed completely" : `waiting for ${status.missingKinds.join(", ")}`],
    ["cluster", counts.join(", ")],
  ];
}

function formatStates(nodes: readonly Node[]): string {
  const counts = Map.groupBy(nodes, ({ state }) => state);
  const parts = [...counts].toSorted(([one], [other]) => one - other);
  if (parts.length === 0) return "none";
  return parts.map(([state, list]) => `${list.length} ${formatEnum(ApplyStateSchema, state)}`).join(", ");
}

function slowest(nodes: readonly Node[], nowMs: number): readonly string[] {
  return nodes
    .flatMap(({ name, unappliedSince }) => (unappliedSince === undefined ? [] : [{ name, unappliedSince }]))
    .toSorted((one, other) => timestampMs(one.unappliedSince) - timestampMs(other.unappliedSince))
    .slice(0, maxNamed)
    .map(({ name, unappliedSince }) => `${name}: a change waits for ${formatAge(unappliedSince, nowMs)}`);
}

/** Errors of nodes, the most frequent first. */
function failing(nodes: readonly Node[]): readonly string[] {
  const byError = Map.groupBy(
    nodes.filter(({ error }) => error !== ""),
    ({ error }) => error,
  );
  return [...byError]
    .toSorted(([, one], [, other]) => other.length - one.length)
    .slice(0, maxNamed)
    .map(([error, [first, ...others]]) => {
      const where =
        others.length === 0 ? first?.name : `${first?.name} and ${formatCount(others.length, "other node")}`;
      return `${where}: ${error}`;
    });
}

const intervalMs = 2_000;
const rowCount = 10;

/**
 * `kpng top`: prints the totals, the nodes that are not up to date and the latest changes of a watcher; on a terminal
 * every two seconds, like top(1), elsewhere once.
 */
export const topCommand: InspectCommand = {
  name: "top",
  description: "live view of a watcher: the nodes that are not up to date, and the latest changes",
  options: [],
  examples: `
Updates every 2 s on a terminal; elsewhere it prints one update and ends.

Examples:
  COMMAND
`,
  run: async (transport, _words, _options, signal) => {
    const client = inspectClient(transport);
    const states = [ApplyState.BEHIND, ApplyState.FAILING, ApplyState.ABSENT];
    await keepAsking(signal, async (answered) => {
      for (; !signal.aborted; await waitMs(intervalMs, signal)) {
        const status = await client.getStatus({});
        answered();
        const { nodes } = status.isSynced ? await client.listNodes({ states, pageSize: rowCount }) : { nodes: [] };
        const { changes } = status.isSynced ? await client.listChanges({ pageSize: rowCount }) : { changes: [] };
        const text = [
          formatLines(totals(status, Date.now())),
          formatSection(`\nNot up to date (at most ${rowCount})`, nodeTable.columns, nodes),
          formatSection("\nLatest changes", changeTable.columns, changes),
        ].join("");
        printScreen(terminalText(text));
        if (!process.stdout.isTTY) return true;
      }
      return true;
    });
  },
};

/** Prints one update. On a terminal it replaces the previous one, and is cut to the height of the screen. */
function printScreen(text: string): void {
  const { isTTY = false, rows: height } = process.stdout;
  if (!isTTY) {
    process.stdout.write(text);
    return;
  }
  const lines = text.trimEnd().split("\n");
  const shown = lines.slice(0, height ? Math.max(1, height - 1) : lines.length);
  // Overwrites the screen in place, without clearing it first: that would flicker and fill the scrollback.
  process.stdout.write(`\u001b[H${shown.map((line) => `${line}\u001b[K\n`).join("")}\u001b[J`);
}
