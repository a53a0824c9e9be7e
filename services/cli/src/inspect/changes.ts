import { fromJson } from "@bufbuild/protobuf";
import {
  type Change,
  type ChangedObject,
  ChangeSchema,
  type Distribution,
  ObjectKind,
  ObjectKindSchema,
} from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { parseNonEmptyText } from "@kpng/process/options.ts";
import { readRecording } from "@kpng/watcher/source/replay/recording.ts";
import { type InspectClient, type InspectCommand, inspectClient } from "./client.ts";
import {
  allNamespacesOption,
  limitOption,
  namespaceOption,
  parseServiceName,
  runList,
  serviceFilterOption,
  splitName,
  splitService,
  warnEmpty,
  watchOption,
} from "./list.ts";
import { isTable, outputOptions, printMessages, readOutputOptions } from "./print/output.ts";
import {
  durationMs,
  formatAge,
  formatClock,
  formatCount,
  formatDuration,
  formatEnum,
  formatMs,
  formatTable,
  oneLine,
  type TableSpec,
  timestampMs,
} from "./print/text.ts";
/** Columns for changes of the cluster, with how many nodes applied each. */
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

const maxNamed = 2;

/** Formats the objects of a change: `endpoints default/web, service default/dns deleted, 3 more`. */
function formatObjects({ objects, objectCount, isFirstList }: Change, max: number = maxNamed): string {
  if (isFirstList) return `initial list: ${formatCount(Number(objectCount), "object")}`;
  const named = objects
    .slice(0, max)
    .map(({ kind, key, isDeleted }) => `${formatEnum(ObjectKindSchema, kind)} ${key}${isDeleted ? " deleted" : ""}`);
  const others = Number(objectCount) - named.length;
  if (others > 0) named.push(`${others} more`);
  return named.length === 0 ? "service CIDRs, or the end of an initial list" : named.join(", ");
}

/**
 * `kpng get changes`: lists recent changes. A change is one revision of the cluster state, with how many nodes applied
 * it and how long that took.
 */
export const changesCommand: InspectCommand = {
  name: "changes",
  aliases: ["change"],
  description: "recent changes, newest first, and how long the nodes took to apply them",
  options: [namespaceOption, allNamespacesOption, serviceFilterOption, limitOption, watchOption, ...outputOptions],
  examples: `
Examples:
  COMMAND
  COMMAND -n default --service web --watch
`,
  run: runList({
    noun: "change",
    table: changeTable,
    filterOf: (_, options) => ({ ...splitService(options), pageSize: Number(options.limit) }),
    // One page, whose size is the limit.
    list: async (client, request) => ({ ...(await client.listChanges(request)), nextPageToken: "" }),
    watch: (client, { namespace, service }, call) => client.watchChanges({ namespace, service }, call),
    rowsOf: ({ changes }) => changes,
    keyOf: ({ revision }) => String(revision),
  }),
};

/**
 * `kpng trace`: prints how changes reached the nodes, and the duration of each stage. The changes come from a watcher
 * or, with `--recording`, from a file of `kpng record`.
 */
export const traceCommand: InspectCommand = {
  name: "trace",
  description: "how long the latest changes took to reach the nodes, stage by stage",
  argument: "[service]",
  parseArgument: parseServiceName,
  options: [
    namespaceOption,
    { ...limitOption, default: 3 },
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
    const filter = { namespace, service };
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
}

/** Passes each change from now on to `print` when its last node has applied it. */
async function watchApplied(
  client: InspectClient,
  filter: ChangeFilter,
  print: (change: Change) => void,
  signal: AbortSignal,
): Promise<void> {
  let isOld = true;
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

/**
 * Formats how a change reached the nodes, one line per stage: median and 99th percentile of all nodes, and the time of
 * the slowest node, with a bar that begins where the previous stage ended.
 */
export function formatWaterfall(change: Change, hasHeaders = true): string {
  const { stages, slowest, toldCount, appliedCount, failedCount, lostCount } = change;
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
  const drawable = rows.map(({ stage, slowest: ms }) => (stage === trigger ? undefined : ms));
  const sum = drawable.reduce<number>((total, ms) => total + (ms ?? 0), 0);
  let startMs = 0;
  const bars = drawable.map((ms) => {
    if (ms === undefined || sum === 0) return "";
    const from = Math.round((startMs / sum) * barLength);
    startMs += ms;
    const length = Math.max(1, Math.round((startMs / sum) * barLength) - from);
    return `${"·".repeat(Math.min(from, barLength - 1))}${"█".repeat(length)}`;
  });
  const drawn = rows.map((row, index) => ({ ...row, bar: bars[index] ?? "" }));
  if (stages?.total !== undefined) {
    drawn.push({
      stage: "total",
      ...spread(stages.total),
      slowest: slowest?.total && durationMs(slowest.total),
      bar: "",
    });
  }
  const ms = (value: number | undefined): string => (value === undefined ? "" : formatMs(value));
  const table = formatTable(
    [
      { title: "STAGE", cell: ({ stage }) => stage },
      { title: "MEDIAN", cell: ({ median }) => ms(median) },
      { title: "P99", cell: ({ p99 }) => ms(p99) },
      { title: "SLOWEST", cell: ({ slowest: value }) => ms(value) },
      { title: slowest === undefined ? "" : slowest.node, cell: ({ bar }) => bar, placeholder: "" },
    ],
    drawn,
    hasHeaders,
  );
  const errors = change.failures.map(({ node, error }) => `failed on ${node}: ${oneLine(error)}\n`);
  const body = `${drawn.length === 0 ? "" : table}${errors.join("")}`;
  return `${head}\n${body.replaceAll(/^(?=.)/gm, "  ")}`;
}

const barLength = 40;

/** Has no bar: it is known only in whole seconds, by the clock of another machine. */
const trigger = "trigger";

interface StageRow {
  readonly stage: string;
  readonly median: number | undefined;
  readonly p99: number | undefined;
  readonly slowest: number | undefined;
}

function stageRows({ receivedAt, storedAt, triggeredAt, stages, slowest }: Change): readonly StageRow[] {
  const rows: StageRow[] = [];
  const once = (stage: string, ms: number): void => {
    rows.push({ stage, median: ms, p99: undefined, slowest: ms });
  };
  if (triggeredAt !== undefined && receivedAt !== undefined) {
    once(trigger, Math.max(0, timestampMs(receivedAt) - timestampMs(triggeredAt)));
  }
  if (receivedAt !== undefined && storedAt !== undefined) {
    once("store", Math.max(0, timestampMs(storedAt) - timestampMs(receivedAt)));
  }
  if (stages === undefined) return rows;
  const timings = slowest?.timings;
  const nodeStages = [
    ["send", stages.send, slowest?.send],
    ["transit", stages.transit, slowest?.transit],
    ["wait", stages.wait, timings?.wait],
    ["render", stages.render, timings?.render],
    ["commit", stages.commit, timings?.commit],
  ] as const;
  for (const [stage, times, ofSlowest] of nodeStages) {
    if (times === undefined || times.count === 0) continue;
    rows.push({ stage, ...spread(times), slowest: ofSlowest && durationMs(ofSlowest) });
  }
  return rows;
}

function spread({ p50, p99 }: Distribution): Pick<StageRow, "median" | "p99"> {
  return { median: p50 && durationMs(p50), p99: p99 && durationMs(p99) };
}
