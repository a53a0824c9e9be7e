import type { Change, Distribution } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { durationMs, formatClock, formatMs, timestampMs } from "./print/format.ts";
import { formatTable } from "./print/table.ts";
import { oneLine } from "./print/terminal-text.ts";
import { formatObjects } from "./tables/change-table.ts";

/**
 * Formats how a change reached the nodes, one line per stage: median and 99th percentile of all nodes, and the time of
 * the slowest node, with a bar that begins where the previous stage ended. `traceCommand` prints it. Separate from the
 * command, because it is pure.
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
