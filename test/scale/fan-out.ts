import { availableParallelism, cpus, loadavg, totalmem } from "node:os";
import { parseArgs } from "node:util";
import { measureRow, type RowResult } from "./measure-row.ts";
import { mebibytes } from "./proc.ts";

/**
 * The fan-out benchmark: one watcher, many hollow nodes, on one machine.
 *
 * Without options it measures the rows of `docs/performance.md`; with an option, one row of that size.
 */
const usage = `node test/scale/fan-out.ts [options]

  --streams <n>       hollow nodes, and nodes that the endpoints run on (100)
  --services <n>      Services (1000)
  --endpoints <n>     endpoints of each Service (10)
  --changes <n>       single changes that are measured (50)
  --limit <seconds>   time limit for all streams to sync, and for one change to reach all of them (60)

KPNG_BENCH_PROFILE folder for CPU profiles of server and load
KPNG_BENCH_NO_PIN  do not pin server and load to cores
`;

/** One row. */
interface Row {
  readonly size: readonly [streams: number, services: number, endpoints: number];
  /** Default 50. */
  readonly changes?: number;
  /** Default 60 000. */
  readonly limitMs?: number;
}

const standardRows: readonly Row[] = [
  { size: [100, 1_000, 10] },
  { size: [1_000, 5_000, 10] },
  { size: [5_000, 5_000, 10], changes: 20, limitMs: 90_000 },
];

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Prints progress to stderr, apart from the results. */
function note(line: string): void {
  process.stderr.write(`  ${line}\n`);
}

function readRows(): readonly Row[] {
  const { values } = parseArgs({
    options: {
      streams: { type: "string" },
      services: { type: "string" },
      endpoints: { type: "string" },
      changes: { type: "string" },
      limit: { type: "string" },
      help: { type: "boolean" },
    },
  });
  if (values.help) {
    say(usage);
    process.exit();
  }
  if (Object.keys(values).length === 0) return standardRows;
  const { streams = 100, services = 1_000, endpoints = 10, changes = 50, limit = 60 } = values;
  const size = [Number(streams), Number(services), Number(endpoints)] as const;
  return [{ size, changes: Number(changes), limitMs: Number(limit) * 1_000 }];
}

async function main(): Promise<void> {
  const rows = readRows();
  const [cpu] = cpus();
  const [load = 0] = loadavg();
  const machine = `${availableParallelism()} cores (${cpu?.model}), ${mebibytes(totalmem())}`;
  say(`Node.js ${process.version}, ${machine}, load before: ${load.toFixed(1)}\n`);
  if (load > 0.5) note("the machine is under other load: durations are too long, CPU times are about right");
  const results: (readonly [name: string, result: RowResult])[] = [];
  for (const { size, changes = 50, limitMs = 60_000 } of rows) {
    const name = size.join(" × ");
    note(name);
    const [streams, services, endpoints] = size;
    const shape = { services, endpoints, nodes: streams };
    try {
      results.push([name, await measureRow({ shape, streams, changes, limitMs }, note)]);
    } catch (error) {
      // A row that fails is reported, and the other rows still run.
      process.exitCode = 1;
      say(`${name}: ${reasonOf(error)}`);
    }
  }
  printTables(results);
}

/** Returns the first lines of an error and of its causes. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const [reason = ""] = error.message.split("\n");
  return error.cause === undefined ? reason : `${reason}: ${reasonOf(error.cause)}`;
}

function printTables(results: readonly (readonly [name: string, result: RowResult])[]): void {
  printTable(
    "One endpoint changed (streams × Services × endpoints)",
    [
      ...["row", "p50", "p99", "last node, median", "last node, worst", "watcher CPU per change"],
      ...["load's CPU per change", "bytes per stream and change", "RSS", "RSS per idle stream"],
    ],
    results.map(([name, { single, ...result }]) => [
      name,
      milliseconds(single.latencies.p50),
      milliseconds(single.latencies.p99),
      milliseconds(single.lastMs.median),
      milliseconds(single.lastMs.max),
      milliseconds(single.serverCpuMs),
      milliseconds(single.loadCpuMs),
      single.bytes.toFixed(0),
      mebibytes(result.rssAfterBytes),
      kibibytes(result.rssPerStreamBytes),
    ]),
  );
  printTable(
    "All connect and sync from cold",
    ["row", "all synced", "p50", "p99", "received", "retries", "watcher CPU", "load's CPU", "RSS peak", "RSS idle"],
    results.map(([name, { opened, rssIdleBytes }]) => [
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

function printTable(title: string, columns: readonly string[], rows: readonly (readonly string[])[]): void {
  const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  const rule = columns.map((_, index) => (index === 0 ? "---" : "--:"));
  say([`${title}:\n`, line(columns), line(rule), ...rows.map(line), ""].join("\n"));
}

function milliseconds(ms: number): string {
  return `${ms.toFixed(ms < 10 ? 2 : 0)} ms`;
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
}

function kibibytes(bytes: number): string {
  return `${(bytes / 1024).toFixed(bytes < 10_240 ? 1 : 0)} KiB`;
}

await main();
