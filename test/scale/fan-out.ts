import { availableParallelism, cpus, loadavg, totalmem } from "node:os";
import { parseArgs } from "node:util";
import { makeCertificates, type TestCertificates } from "@kpng/process/testing/certificates.ts";
import { startKpng } from "./kpng-server.ts";
import { measureRow, type RowOptions, type RowResult } from "./measure-row.ts";
import { mebibytes } from "./proc.ts";
import type { ScriptName } from "./scripts.ts";
import { startBareServer, startOwnServer } from "./server-under-test.ts";
import { changesTable, connectTable, type NamedResult, scriptsTable, stalledTable, stormsTable } from "./tables.ts";

/**
 * The fan-out benchmark: one watcher, many hollow nodes, on one machine.
 *
 * Without options it measures the rows of `docs/performance.md`. With `--streams`, `--services` or `--endpoints` it
 * measures one row of that size; the other options change that row.
 */
const usage = `node test/scale/fan-out.ts [options]

  --streams <n>       hollow nodes (100)
  --services <n>      Services (1000)
  --endpoints <n>     endpoints of each Service (10)
  --nodes <n>         nodes that the endpoints run on (as many as streams)
  --changes <n>       single changes that are measured (50)
  --cold              count the first changes after the start, without a warm-up
  --per-connection <n>  streams on one connection (1)
  --plain             requests of a Go client, without our features
  --tls               use TLS with client certificates
  --stalled <n>       readers that stop reading, beside the others
  --hints zone|node   topology hints on all endpoints
  --local-every <n>   of every n Services one has externalTrafficPolicy Local
  --scripts <names>   rolling,drain,churn20,churn1000,burst
  --storms <ms,ms>    mass reconnects, each spread over so many milliseconds
  --bare              the baseline instead of the watcher: node:http2 that sends all streams the same bytes
  --limit <seconds>   time limit for all streams to sync, and for one change to reach all of them (60)

KPNG_BIN           the Go original or a program with its options, also measured on the smallest row
KPNG_BENCH_PROFILE folder for CPU profiles of server and load
KPNG_BENCH_NO_PIN  do not pin server and load to cores
`;

interface Row extends Partial<Omit<RowOptions, "shape">> {
  readonly name: string;
  readonly streams: number;
  readonly shape: { readonly services: number; readonly endpoints: number; readonly nodes?: number };
  readonly hasTls?: boolean;
  /** Measures the baseline of bare-server.ts instead of the watcher. */
  readonly isBare?: boolean;
}

const allScripts: readonly ScriptName[] = ["rolling", "drain", "churn20", "churn1000", "burst"];

const standardRows: readonly Row[] = [
  { name: "100 × 1 000 × 10", streams: 100, shape: { services: 1_000, endpoints: 10 }, scripts: allScripts },
  {
    name: "100 × 1 000 × 10, bare node:http2",
    streams: 100,
    shape: { services: 1_000, endpoints: 10 },
    isBare: true,
  },
  { name: "100 × 2 000 × 10", streams: 100, shape: { services: 2_000, endpoints: 10 } },
  {
    name: "1 000 × 1 000 × 10",
    streams: 1_000,
    shape: { services: 1_000, endpoints: 10 },
    scripts: allScripts,
    stalled: 50,
  },
  {
    name: "1 000 × 5 000 × 10",
    streams: 1_000,
    shape: { services: 5_000, endpoints: 10 },
    scripts: ["rolling", "churn1000", "burst"],
    storms: [0, 5_000],
    stalled: 50,
  },
  {
    name: "1 000 × 5 000 × 10, bare node:http2",
    streams: 1_000,
    shape: { services: 5_000, endpoints: 10 },
    isBare: true,
  },
  {
    name: "100 × 1 000 × 10, plain, first 20 changes",
    streams: 100,
    shape: { services: 1_000, endpoints: 10 },
    isExtended: false,
    isCold: true,
    changes: 20,
  },
  {
    name: "1 000 × 5 000 × 10, plain, first 20 changes",
    streams: 1_000,
    shape: { services: 5_000, endpoints: 10 },
    isExtended: false,
    isCold: true,
    changes: 20,
  },
  { name: "1 000 × 10 000 × 10", streams: 1_000, shape: { services: 10_000, endpoints: 10 }, changes: 30 },
  {
    name: "1 000 × 5 000 × 10, TLS",
    streams: 1_000,
    shape: { services: 5_000, endpoints: 10 },
    hasTls: true,
    changes: 30,
  },
  {
    name: "1 000 × 5 000 × 10, TLS, bare node:http2",
    streams: 1_000,
    shape: { services: 5_000, endpoints: 10 },
    hasTls: true,
    isBare: true,
    changes: 30,
  },
  {
    name: "5 000 × 5 000 × 10",
    streams: 5_000,
    shape: { services: 5_000, endpoints: 10 },
    changes: 20,
    limitMs: 90_000,
    storms: [5_000],
  },
];

/** Time after which no further standard row is started. */
const budgetMs = 5 * 60_000;

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Prints progress to stderr, apart from the results. */
function note(line: string): void {
  process.stderr.write(`  ${line}\n`);
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      streams: { type: "string" },
      services: { type: "string" },
      endpoints: { type: "string" },
      nodes: { type: "string" },
      changes: { type: "string" },
      cold: { type: "boolean" },
      "per-connection": { type: "string" },
      plain: { type: "boolean" },
      tls: { type: "boolean" },
      stalled: { type: "string" },
      hints: { type: "string" },
      "local-every": { type: "string" },
      scripts: { type: "string" },
      storms: { type: "string" },
      limit: { type: "string" },
      bare: { type: "boolean" },
      help: { type: "boolean" },
    },
  });
  if (values.help) {
    say(usage);
    return;
  }
  const { streams, services, endpoints } = values;
  const isOne = [streams, services, endpoints].some((value) => value !== undefined);
  const common: Partial<RowOptions> = {
    ...(values.changes === undefined ? {} : { changes: Number(values.changes) }),
    ...(values.stalled === undefined ? {} : { stalled: Number(values.stalled) }),
    ...(values.scripts === undefined ? {} : { scripts: values.scripts.split(",").map(readScript) }),
    ...(values.storms === undefined ? {} : { storms: values.storms.split(",").map(Number) }),
    ...(values.limit === undefined ? {} : { limitMs: Number(values.limit) * 1_000 }),
    ...(values["per-connection"] === undefined ? {} : { streamsPerConnection: Number(values["per-connection"]) }),
    ...(values.cold === true ? { isCold: true } : {}),
    ...(values.plain === true ? { isExtended: false } : {}),
  };
  const size = {
    streams: Number(streams ?? 100),
    services: Number(services ?? 1_000),
    endpoints: Number(endpoints ?? 10),
  };
  const shape = {
    services: size.services,
    endpoints: size.endpoints,
    nodes: Number(values.nodes ?? size.streams),
    hints: readHints(values.hints),
    localEvery: Number(values["local-every"] ?? 0),
  };
  const rows: readonly Row[] = isOne
    ? [
        {
          name: `${size.streams} × ${size.services} × ${size.endpoints}`,
          streams: size.streams,
          shape,
          hasTls: values.tls === true,
          isBare: values.bare === true,
        },
      ]
    : standardRows;
  await measure(rows.map((row) => ({ ...row, ...common })));
}

function readScript(name: string): ScriptName {
  const script = allScripts.find((one) => one === name);
  if (script === undefined) throw new Error(`unknown script "${name}": use one of ${allScripts.join(", ")}`);
  return script;
}

function readHints(hints: string | undefined): "none" | "zone" | "node" {
  if (hints === undefined) return "none";
  if (hints !== "zone" && hints !== "node") throw new Error(`--hints ${hints}: use zone or node`);
  return hints;
}

async function measure(rows: readonly Row[]): Promise<void> {
  const startedAt = Date.now();
  const [cpu] = cpus();
  const [load = 0] = loadavg();
  const machine = `${availableParallelism()} cores (${cpu?.model}), ${mebibytes(totalmem())}`;
  say(`Node.js ${process.version}, ${machine}, load before: ${load.toFixed(1)}\n`);
  if (load > 0.5) note("the machine is under other load: durations are too long, CPU times are about right");
  const results: NamedResult[] = [];
  const certificates = rows.some((row) => row.hasTls) ? makeCertificates() : undefined;
  try {
    for (const row of rows) {
      const isLate = rows.length > 1 && Date.now() - startedAt > budgetMs;
      results.push(
        isLate ? { name: row.name, result: "left out, out of time" } : await measureOne(row, certificates, undefined),
      );
    }
    const { KPNG_BIN: program } = process.env;
    const [first] = rows;
    if (program !== undefined && first !== undefined) {
      const alike: Row = { ...first, scripts: [], storms: [], stalled: 0, hasTls: false, isExtended: false };
      results.push(await measureOne({ ...alike, name: `${first.name}, plain` }, undefined, undefined));
      results.push(await measureOne({ ...alike, name: `${first.name}, KPNG_BIN` }, undefined, program));
    }
  } finally {
    certificates?.remove();
  }
  for (const table of [changesTable, connectTable, scriptsTable, stalledTable, stormsTable]) {
    const text = table(results);
    if (text !== undefined) say(`${text}\n`);
  }
  for (const { name, result } of results) {
    const failure = typeof result === "string" ? result : result.failure;
    if (failure === undefined) continue;
    process.exitCode = 1;
    say(`${name}: ${failure.split("\n")[0]}`);
  }
  say(`(${Math.round((Date.now() - startedAt) / 1000)} s)`);
}

async function measureOne(
  row: Row,
  certificates: TestCertificates | undefined,
  program: string | undefined,
): Promise<NamedResult> {
  note(row.name);
  const { name, hasTls, isBare = false, shape, ...given } = row;
  const options: RowOptions = {
    streamsPerConnection: 1,
    isExtended: true,
    stalled: 0,
    changes: 50,
    scripts: [],
    storms: [],
    limitMs: 60_000,
    ...given,
    tls: hasTls ? certificates : undefined,
    shape: { nodes: row.streams, ...shape },
  };
  try {
    return { name, result: await measureWith(options, isBare, program) };
  } catch (error) {
    // A row that fails is reported as a result, and the other rows still run.
    const reason = reasonOf(error);
    note(`failed: ${reason}`);
    return { name, result: reason };
  }
}

/** Returns the first lines of an error and of its causes. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const [reason = ""] = error.message.split("\n");
  return error.cause === undefined ? reason : `${reason}: ${reasonOf(error.cause)}`;
}

async function measureWith(options: RowOptions, isBare: boolean, program: string | undefined): Promise<RowResult> {
  const { shape, tls } = options;
  const start = isBare ? startBareServer : startOwnServer;
  const server = program === undefined ? await start(shape, tls) : await startKpng(program, shape);
  try {
    return await measureRow(server, options, note);
  } finally {
    await server.stop();
  }
}

await main();
