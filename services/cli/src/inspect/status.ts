import type { Node } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { ApplyStateSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { type InspectCommand, inspectClient } from "./client.ts";
import { findFindings, readWatcherState, type WatcherState } from "./findings.ts";
import { formatAge, formatCount, formatEnum, oneLine, terminalText, timestampMs } from "./print/text.ts";

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
  const lines = [
    [
      "watcher",
      `revision ${status.revision}, up ${formatAge(status.startedAt, nowMs)}, ${versionOf(status)}instance ${status.instance}`,
    ],
    ["source", status.isSynced ? "listed completely" : `waiting for ${status.missingKinds.join(", ")}`],
    [
      "cluster",
      [
        formatCount(status.serviceCount, "Service"),
        formatCount(status.endpointCount, "endpoint"),
        formatCount(status.sliceCount, "slice"),
        formatCount(status.nodeCount, "node"),
      ].join(", "),
    ],
    ["nodes", formatStates(nodes)],
    ...slowest(nodes, nowMs).map((text, index) => [index === 0 ? "slowest" : "", text]),
    ...failing(nodes).map((text, index) => [index === 0 ? "errors" : "", text]),
    [
      "findings",
      findings.length === 0
        ? "none"
        : `${formatCount(errors, "error")}, ${formatCount(findings.length - errors, "warning")}: run kpng analyze`,
    ],
  ];
  return lines.map(([title = "", text = ""]) => `${title.padEnd(10)}${oneLine(text)}\n`).join("");
}

function versionOf({ version }: WatcherState["status"]): string {
  return version === "" ? "" : `version ${version}, `;
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
