import { availableParallelism, cpus, loadavg, totalmem } from "node:os";
import { parseArgs } from "node:util";
import { makeCertificates, type TestCertificates } from "@kpng/process/testing/certificates.ts";
import { measureRow, type RowOptions, type RowResult } from "./measure-row.ts";
import { mebibytes } from "./proc.ts";
import { startKpng, startOwnServer } from "./servers.ts";

/**
 * The fan-out benchmark: one watcher, many hollow nodes, on one machine.
 *
 * Without options it measures the rows of `docs/performance.md`. With `--streams`, `--services` or `--endpoints` it
 * measures one row of that size; the other options change that row.
 */
const usage = `node test/scale/fan-out.ts [options]

  --streams <n>       hollow nodes, and nodes that the endpoints run on (100)
  --services <n>      Services (1000)
  --endpoints <n>     endpoints of each Service (10)
  --changes <n>       single changes that are measured (50)
  --cold              count the first changes after the start, without a warm-up
  --plain             requests of a Go client, without our features
  --tls               use TLS with client certificates
  --rolling           also a rolling update of 1 000 pods
  --limit <seconds>   time limit for all streams to sync, and for one change to reach all of them (60)

KPNG_BIN           the Go original or a program with its options, also measured on the first row
KPNG_BENCH_PROFILE folder for CPU profiles of server and load
KPNG_BENCH_NO_PIN  do not pin server and load to cores
`;

/** One row; its size is `[streams, services, endpoints]`. */
interface Row extends Partial<Omit<RowOptions, "shape" | "streams" | "tls">> {
  readonly size: readonly [streams: number, services: number, endpoints: number];
  readonly hasTls?: boolean;
  /** The Go original at this path is measured instead of the watcher. */
  readonly program?: string;
}

const standardRows: readonly Row[] = [
  { size: [100, 1_000, 10], hasRolling: true },
  { size: [1_000, 5_000, 10], hasRolling: true },
  { size: [100, 1_000, 10], isExtended: false, isCold: true, changes: 20 },
  { size: [1_000, 5_000, 10], isExtended: false, isCold: true, changes: 20 },
  { size: [1_000, 5_000, 10], hasTls: true, changes: 30 },
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
      changes: { type: "string", default: "50" },
      cold: { type: "boolean", default: false },
      plain: { type: "boolean", default: false },
      tls: { type: "boolean", default: false },
      rolling: { type: "boolean", default: false },
      limit: { type: "string", default: "60" },
      help: { type: "boolean" },
    },
  });
  if (values.help) {
    say(usage);
    process.exit();
  }
  const { streams, services, endpoints } = values;
  if ([streams, services, endpoints].every((value) => value === undefined)) return standardRows;
  return [
    {
      size: [Number(streams ?? 100), Number(services ?? 1_000), Number(endpoints ?? 10)],
      changes: Number(values.changes),
      isCold: values.cold,
      isExtended: !values.plain,
      hasTls: values.tls,
      hasRolling: values.rolling,
      limitMs: Number(values.limit) * 1_000,
    },
  ];
}

async function main(): Promise<void> {
  const rows = [...readRows()];
  const { KPNG_BIN: program } = process.env;
  const [first] = rows;
  if (program !== undefined && first !== undefined) {
    const alike: Row = { ...first, hasRolling: false, hasTls: false, isExtended: false };
    rows.push(alike, { ...alike, program });
  }
  const [cpu] = cpus();
  const [load = 0] = loadavg();
  const machine = `${availableParallelism()} cores (${cpu?.model}), ${mebibytes(totalmem())}`;
  say(`Node.js ${process.version}, ${machine}, load before: ${load.toFixed(1)}\n`);
  if (load > 0.5) note("the machine is under other load: durations are too long, CPU times are about right");
  const results: (readonly [name: string, result: RowResult])[] = [];
  const certificates = makeCertificates();
  try {
    for (const row of rows) {
      const name = nameOf(row);
      note(name);
      try {
        results.push([name, await measure(row, certificates)]);
      } catch (error) {
        // A row that fails is reported, and the other rows still run.
        process.exitCode = 1;
        say(`${name}: ${reasonOf(error)}`);
      }
    }
  } finally {
    certificates.remove();
  }
  printTables(results);
}

/** *Shape:* `100 × 1000 × 10, plain, TLS`. */
function nameOf({ size, isExtended, isCold, hasTls, program }: Row): string {
  const words = [
    size.join(" × "),
    ...(isExtended === false ? ["plain"] : []),
    ...(isCold ? ["first changes"] : []),
    ...(hasTls ? ["TLS"] : []),
    ...(program === undefined ? [] : ["KPNG_BIN"]),
  ];
  return words.join(", ");
}

async function measure(row: Row, certificates: TestCertificates): Promise<RowResult> {
  const { size, hasTls, program, ...given } = row;
  const [streams, services, endpoints] = size;
  const options: RowOptions = {
    isExtended: true,
    isCold: false,
    hasRolling: false,
    changes: 50,
    limitMs: 60_000,
    ...given,
    streams,
    shape: { services, endpoints, nodes: streams },
    tls: hasTls ? certificates : undefined,
  };
  const { shape, tls } = options;
  const server = program === undefined ? await startOwnServer(shape, tls) : await startKpng(program, shape);
  try {
    return await measureRow(server, options, note);
  } finally {
    await server.stop();
  }
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
      ...["load's CPU per change", "bytes per stream and change", "RSS", "RSS per idle stream", "heap per idle stream"],
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
      kibibytes(result.heapPerStreamBytes),
    ]),
  );
  printTable(
    "All connect and sync from cold; a rolling update of 1 000 pods",
    [
      ...["row", "all synced", "p50", "p99", "received", "retries", "watcher CPU", "load's CPU", "RSS peak"],
      ...["RSS idle", "rolling update, watcher CPU"],
    ],
    results.map(([name, { opened, rssIdleBytes, rollingCpuMs }]) => [
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
      seconds(rollingCpuMs ?? Number.NaN),
    ]),
  );
}

function printTable(title: string, columns: readonly string[], rows: readonly (readonly string[])[]): void {
  const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  const rule = columns.map((_, index) => (index === 0 ? "---" : "--:"));
  say([`${title}:\n`, line(columns), line(rule), ...rows.map(line), ""].join("\n"));
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

await main();
