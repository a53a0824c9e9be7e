import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";
import {
  type Change,
  ChangeSchema,
  type Distribution,
  ObjectKindSchema,
} from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import type { InspectCommand } from "./client.ts";
import {
  limitOption,
  listCommand,
  namespaceOptions,
  parseServiceName,
  serviceFilterOption,
  splitName,
  splitService,
  warnEmpty,
} from "./list.ts";
import { isTable, outputOptions, printMessages, readOutputOptions } from "./print/output.ts";
import {
  type Column,
  enumWord,
  formatAge,
  formatClock,
  formatCount,
  formatDuration,
  formatMs,
  formatTable,
  oneLine,
  type TableSpec,
  toMs,
} from "./print/text.ts";

export const changeTable: TableSpec<typeof ChangeSchema> = {
  schema: ChangeSchema,
  columns: [
    { title: "REVISION", cell: ({ revision }) => String(revision) },
    { title: "AGE", cell: ({ storedAt }) => formatAge(storedAt) },
    { title: "CHANGE", cell: (change) => formatObjects(change) },
    { title: "SENT", cell: ({ toldCount }) => String(toldCount) },
    { title: "APPLIED", cell: ({ appliedCount }) => String(appliedCount) },
    { title: "FAILED", cell: ({ failedCount }) => (failedCount === 0 ? "" : String(failedCount)) },
    { title: "LOST", cell: ({ lostCount }) => (lostCount === 0 ? "" : String(lostCount)) },
    { title: "OTHERS", cell: ({ otherCount }) => (otherCount === 0 ? "" : String(otherCount)) },
    { title: "MEDIAN", cell: ({ stages }) => formatDuration(stages?.total?.p50) },
    { title: "P99", cell: ({ stages }) => formatDuration(stages?.total?.p99) },
    { title: "MAX", cell: ({ stages }) => formatDuration(stages?.total?.max) },
    { title: "SLOWEST-NODE", cell: ({ slowest }) => slowest?.node ?? "" },
    { title: "STORED", cell: ({ storedAt }) => formatClock(storedAt), isWide: true },
    { title: "SOURCE", cell: ({ source }) => source, isWide: true },
    { title: "RECEIVED", cell: ({ receivedCount }) => String(receivedCount), isWide: true },
    {
      title: "ERROR",
      cell: ({ failures: [first] }) => (first === undefined ? "" : `${first.node}: ${first.error}`),
      isWide: true,
    },
  ],
};

/** Formats the objects of a change: `endpoints default/web, service default/dns deleted, 3 more`. */
function formatObjects({ objects, objectCount, isFirstList }: Change, max = 2): string {
  if (isFirstList) return `initial list: ${formatCount(Number(objectCount), "object")}`;
  const named = objects
    .slice(0, max)
    .map(({ kind, key, isDeleted }) => `${enumWord(ObjectKindSchema, kind)} ${key}${isDeleted ? " deleted" : ""}`);
  const others = Number(objectCount) - named.length;
  if (others > 0) named.push(`${others} more`);
  return named.length === 0 ? "service CIDRs, or the end of an initial list" : named.join(", ");
}

/** `kpng get changes`: a change is one revision of the cluster state. */
export const changesCommand = listCommand({
  name: "changes",
  aliases: ["change"],
  description: "recent changes, newest first, and how long the nodes took to apply them",
  options: [...namespaceOptions, serviceFilterOption, limitOption],
  examples: `
Examples:
  COMMAND
  COMMAND -n default --service web --watch
`,
  noun: "change",
  table: changeTable,
  filterOf: (_, options) => ({ ...splitService(options), pageSize: Number(options.limit) }),
  // Read only one page, whose size is the limit.
  list: async (client, request) => ({ ...(await client.listChanges(request)), nextPageToken: "" }),
  watch: (client, { namespace, service }, call) => client.watchChanges({ namespace, service }, call),
  rowsOf: ({ changes }) => changes,
  keyOf: ({ revision }) => String(revision),
});

/** `kpng trace`: prints how the latest changes reached the nodes, with the duration of each stage. */
export const traceCommand: InspectCommand = {
  name: "trace",
  argument: "[service]",
  parseArgument: parseServiceName,
  options: [
    ...namespaceOptions,
    { ...limitOption, description: "number of the newest changes; the newest is shown last", default: 3 },
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
`,
  run: async ({ client, words: [argument], options }) => {
    const output = await readOutputOptions(options);
    const { namespace, name: service } = splitName(argument, options);
    const request = { namespace, service, pageSize: Number(options.limit) };
    const { changes } = await client.listChanges(request);
    const shown = changes.filter(({ isFirstList }) => !isFirstList).reverse();
    if (!isTable(output)) printMessages(ChangeSchema, shown, output);
    else for (const change of shown) output.write(`${formatTrace(change)}\n`);
    if (shown.length === 0) warnEmpty("change");
  },
};

/** Formats how a change reached the nodes, with one line per stage. */
export function formatTrace(change: Change): string {
  const { slowest, toldCount, appliedCount, failedCount, lostCount } = change;
  const counts = [
    `sent ${toldCount}`,
    `applied ${appliedCount}`,
    ...(failedCount === 0 ? [] : [`failed ${failedCount}`]),
    ...(lostCount === 0 ? [] : [`lost ${lostCount}`]),
  ];
  const head = [
    `revision ${change.revision}`,
    formatClock(change.storedAt),
    formatObjects(change, 5),
    ...(change.source === "" ? [] : [`from ${change.source}`]),
    counts.join(", "),
  ].join("  ");
  const rows = stageRows(change);
  const titles = ["STAGE", "MEDIAN", "P99", slowest?.node ?? "SLOWEST"];
  const columns = titles.map((title, index): Column<readonly string[]> => ({ title, cell: (row) => row[index] ?? "" }));
  const errors = change.failures.map(({ node, error }) => `failed on ${node}: ${oneLine(error)}\n`);
  const body = `${rows.length === 0 ? "" : formatTable(columns, rows)}${errors.join("")}`;
  return `${head}\n${body.replaceAll(/^(?=.)/gm, "  ")}`;
}

/** *Shape:* the stage, its median and 99th percentile, and its duration on the slowest node; "" where there is none. */
function stageRows({ receivedAt, storedAt, triggeredAt, stages, slowest }: Change): readonly (readonly string[])[] {
  // This stage takes the same time for all nodes.
  const between = (stage: string, from: Timestamp | undefined, to: Timestamp | undefined): string[][] => {
    if (from === undefined || to === undefined) return [];
    const duration = formatMs(Math.max(0, toMs(to) - toMs(from)));
    return [[stage, duration, "", duration]];
  };
  const onNodes = (stage: string, times: Distribution | undefined, ofSlowest: Duration | undefined): string[][] => {
    if (times === undefined || times.count === 0) return [];
    return [[stage, ...[times.p50, times.p99, ofSlowest].map(formatDuration)]];
  };
  return [
    ...between("trigger", triggeredAt, receivedAt),
    ...between("store", receivedAt, storedAt),
    ...onNodes("send", stages?.send, slowest?.send),
    ...onNodes("transit", stages?.transit, slowest?.transit),
    ...onNodes("wait", stages?.wait, slowest?.timings?.wait),
    ...onNodes("render", stages?.render, slowest?.timings?.render),
    ...onNodes("commit", stages?.commit, slowest?.timings?.commit),
    ...onNodes("total", stages?.total, slowest?.total),
  ];
}
