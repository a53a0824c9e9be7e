import type { Change } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import type { Node } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { GetStatusResponse, ListFindingsResponse } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ApplyState, ApplyStateSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { changeTable } from "./changes.ts";
import { type InspectCommand, keepAsking, type Replica, readPages } from "./client.ts";
import { countFindings, countObjects, mergeFindings, severityOf } from "./findings.ts";
import { nodeTable } from "./nodes.ts";
import { enumWord, formatAge, formatSection, oneLine, terminalText } from "./print/text.ts";
import { type Answer, askAll, joinNodes, repliesOf } from "./replicas.ts";

/** `kpng status`. */
export const statusCommand: InspectCommand = {
  name: "status",
  options: [],
  examples: `
Examples:
  COMMAND
  COMMAND --api unix:///run/kpng/watcher.sock

  # all replicas, and where they differ
  COMMAND --api 10.0.0.11:12090,10.0.0.12:12090
`,
  run: async ({ replicas }) => {
    process.stdout.write(await readScreen(replicas, "all"));
  },
};

const intervalMs = 2_000;

/** `kpng top`. */
export const topCommand: InspectCommand = {
  name: "top",
  options: [],
  examples: `
Updates every 2 s on a terminal; elsewhere it prints one update and ends.

Examples:
  COMMAND
`,
  run: async ({ replicas, signal }) => {
    // To one of several replicas, most nodes are absent.
    const scope = replicas.length === 1 ? "late" : "all";
    await keepAsking(signal, async (answered) => {
      for (; !signal.aborted; await waitMs(intervalMs, signal)) {
        const screen = await readScreen(replicas, scope);
        answered();
        printScreen(screen);
        if (!process.stdout.isTTY) return true;
      }
      return true;
    });
  },
};

/** Prints one update. On a terminal, the update replaces the previous one and is cut to the size of the screen. */
function printScreen(text: string): void {
  const { isTTY = false, rows: height } = process.stdout;
  const lines = text.split("\n").slice(0, (height || Number.POSITIVE_INFINITY) - 1);
  // Overwrite the screen in place; clearing it first would flicker and fill the scrollback. Meanwhile, the terminal cuts
  // long lines (7l): wrapped ones would scroll the screen.
  process.stdout.write(isTTY ? `\u001b[?7l\u001b[H${lines.join("\u001b[K\n")}\u001b[J\u001b[?7h` : text);
}

/** Nodes that the screen reads: all, to count them by state, or only the late ones that it lists. */
type NodeScope = "all" | "late";

async function readScreen(replicas: readonly Replica[], scope: NodeScope): Promise<string> {
  const answers = await askAll(replicas, async (client) => {
    const status = await client.getStatus({});
    const readNodes = async (): Promise<readonly Node[]> =>
      scope === "all"
        ? readPages(client.listNodes, {}, (page) => page.nodes)
        : (await client.listNodes({ states: [...lateStates], pageSize: maxRows })).nodes;
    const [findings, nodes, { changes }] = await Promise.all([
      client.listFindings({}),
      status.isSynced ? readNodes() : [],
      status.isSynced ? client.listChanges({ pageSize: maxRows }) : { changes: [] },
    ]);
    return { status, findings, nodes, changes };
  });
  return terminalText(formatStatus(answers, Date.now(), scope));
}

/** Maximum number of nodes and changes that are listed. */
const maxRows = 10;

/** Maximum number of findings that are listed. */
const maxFindings = 3;

const lateStates: readonly ApplyState[] = [ApplyState.BEHIND, ApplyState.FAILING, ApplyState.ABSENT];

/** The information about a watcher that `kpng status` shows. */
interface WatcherStatus {
  readonly status: GetStatusResponse;
  readonly findings: ListFindingsResponse;
  readonly nodes: readonly Node[];
  readonly changes: readonly Change[];
}

type Line = readonly [title: string, text: string];

/**
 * Formats the screen, with the changes of the first replica that answered. `nowMs` is the current time, for the uptime;
 * the tables read the clock themselves.
 */
export function formatStatus(answers: readonly Answer<WatcherStatus>[], nowMs: number, scope: NodeScope): string {
  const replies = repliesOf(answers);
  const nodes = joinNodes(replies.map(({ value }) => value.nodes));
  const lateNodes = nodes.filter(({ state }) => lateStates.includes(state)).slice(0, maxRows);
  const lines: readonly Line[] = [
    ...replies.flatMap(({ api, value }): readonly Line[] => [
      ...(answers.length === 1 ? [] : [["replica", api] as const]),
      ...totals(value.status, nowMs),
    ]),
    ...(scope === "all" ? [["nodes", formatStates(nodes)] as const] : []),
    ...findingLines(mergeFindings(answers)),
  ];
  return [
    ...lines.map(([title, text]) => `${title.padEnd(10)}${oneLine(text)}\n`),
    formatSection(`\nNot up to date (at most ${maxRows})`, nodeTable.columns, lateNodes),
    formatSection("\nLatest changes", changeTable.columns, replies[0]?.value.changes ?? []),
  ].join("");
}

function totals(status: GetStatusResponse, nowMs: number): readonly Line[] {
  const version = status.version === "" ? "" : `version ${status.version}, `;
  return [
    [
      "watcher",
      `revision ${status.revision}, up ${formatAge(status.startedAt, nowMs)}, ${version}instance ${status.instance}`,
    ],
    ["source", status.isSynced ? "listed completely" : `waiting for ${status.missingKinds.join(", ")}`],
    ["cluster", `${countObjects(status)}${status.clusterId === "" ? "" : `, UID ${status.clusterId}`}`],
  ];
}

function formatStates(nodes: readonly Node[]): string {
  const counts = Map.groupBy(nodes, ({ state }) => state);
  const parts = [...counts].toSorted(([one], [other]) => one - other);
  if (parts.length === 0) return "none";
  return parts.map(([state, list]) => `${list.length} ${enumWord(ApplyStateSchema, state)}`).join(", ");
}

function findingLines(response: ListFindingsResponse): readonly Line[] {
  const { findings } = response;
  if (findings.length === 0) return [["findings", "none"]];
  return [
    ["findings", `${countFindings(response)}: run kpng analyze`],
    ...findings
      .slice(0, maxFindings)
      .map((finding): Line => ["", `${severityOf(finding)} ${finding.subject}: ${finding.text}`]),
  ];
}
