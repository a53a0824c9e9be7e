import type { ChangeFigures, RowResult } from "./measure-row.ts";
import { mebibytes } from "./proc.ts";

export interface NamedResult {
  readonly name: string;
  /** Result, or the reason why there is none. */
  readonly result: RowResult | string;
}

type Measured = readonly [name: string, result: RowResult];

/** Table of single endpoint changes: latency and cost. */
export function changesTable(results: readonly NamedResult[]): string | undefined {
  return table(
    "One endpoint changed (streams × Services × endpoints)",
    ["row", ...changeColumns, "RSS", "RSS per idle stream", "heap per idle stream"],
    measured(results).map(([name, result]) => [
      name,
      ...changeCells(result.single),
      mebibytes(result.rssAfterBytes),
      kibibytes(result.rssPerStreamBytes),
      kibibytes(result.heapPerStreamBytes),
    ]),
  );
}

export function connectTable(results: readonly NamedResult[]): string | undefined {
  return table(
    "All connect and sync from cold",
    ["row", "all synced", "p50", "p99", "received", "retries", "watcher CPU", "load's CPU", "RSS peak", "RSS idle"],
    measured(results).map(([name, { opened, rssIdleBytes }]) => [
      name,
      seconds(opened.elapsedMs),
      seconds(opened.each.p50),
      seconds(opened.each.p99),
      mebibytes(opened.receivedBytes),
      String(opened.retries),
      seconds(opened.serverCpuMs),
      seconds(opened.loadCpuMs),
      mebibytes(opened.peakRssBytes),
      mebibytes(rssIdleBytes),
    ]),
  );
}

export function scriptsTable(results: readonly NamedResult[]): string | undefined {
  const columns = ["changes", "batches per stream", "age p50", "age p99", "age p99.9", "last node after the end"];
  const costs = ["watcher CPU", "load's CPU", "bytes per stream", "event loop p99", "event loop max"];
  return table(
    "Change mixes (age: from the oldest change in a batch until it is complete)",
    ["row", "mix", ...columns, ...costs],
    measured(results).flatMap(([name, { scripts }]) =>
      scripts.map((script) => [
        name,
        script.name,
        `${script.changes} in ${script.seconds.toFixed(1)} s`,
        script.batchesPerStream.toFixed(0),
        milliseconds(script.latencies.p50),
        milliseconds(script.latencies.p99),
        milliseconds(script.latencies.p999),
        milliseconds(script.lastMs),
        milliseconds(script.serverCpuMs),
        milliseconds(script.loadCpuMs),
        kibibytes(script.bytesPerStream),
        milliseconds(script.delay.p99),
        milliseconds(script.delay.max),
      ]),
    ),
  );
}

export function stalledTable(results: readonly NamedResult[]): string | undefined {
  return table(
    "Beside readers that stop reading (half before the first byte, half after the first batch)",
    ["row", "", ...changeColumns, "RSS held for them"],
    measured(results).flatMap(([name, { single, stalled }]) =>
      stalled === undefined
        ? []
        : [
            [name, "without", ...changeCells(single), ""],
            [name, "with", ...changeCells(stalled.single), mebibytes(stalled.rssGrowthBytes)],
          ],
    ),
  );
}

export function stormsTable(results: readonly NamedResult[]): string | undefined {
  return table(
    "All reconnect at once",
    ["row", "spread over", "all synced", "p50", "p99", "received", "retries", "watcher CPU", "RSS peak"],
    measured(results).flatMap(([name, { storms }]) =>
      storms.map((storm) => [
        name,
        seconds(storm.jitterMs),
        seconds(storm.elapsedMs),
        seconds(storm.each.p50),
        seconds(storm.each.p99),
        mebibytes(storm.receivedBytes),
        String(storm.retries),
        seconds(storm.serverCpuMs),
        mebibytes(storm.peakRssBytes),
      ]),
    ),
  );
}

const changeColumns = [
  "p50",
  "p99",
  "p99.9",
  "last node, median",
  "last node, worst",
  "watcher CPU per change",
  "load's CPU per change",
  "bytes per stream and change",
];

function changeCells({ latencies, lastMs, serverCpuMs, loadCpuMs, bytes }: ChangeFigures): string[] {
  return [
    milliseconds(latencies.p50),
    milliseconds(latencies.p99),
    milliseconds(latencies.p999),
    milliseconds(lastMs.median),
    milliseconds(lastMs.max),
    milliseconds(serverCpuMs),
    milliseconds(loadCpuMs),
    bytes.toFixed(0),
  ];
}

function measured(results: readonly NamedResult[]): Measured[] {
  return results.flatMap(({ name, result }) => (typeof result === "string" ? [] : [[name, result] as const]));
}

function table(title: string, columns: readonly string[], rows: readonly (readonly string[])[]): string | undefined {
  if (rows.length === 0) return undefined;
  const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  const rule = columns.map((_, index) => (index === 0 ? "---" : "--:"));
  return [`${title}:\n`, line(columns), line(rule), ...rows.map(line)].join("\n");
}

function milliseconds(ms: number): string {
  return Number.isNaN(ms) ? "–" : `${ms.toFixed(ms < 10 ? 2 : 0)} ms`;
}

function seconds(ms: number): string {
  return Number.isNaN(ms) ? "–" : `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
}

function kibibytes(bytes: number): string {
  return Number.isNaN(bytes) ? "–" : `${(bytes / 1024).toFixed(bytes < 10_240 ? 1 : 0)} KiB`;
}
