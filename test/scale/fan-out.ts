import { availableParallelism, cpus, loadavg, totalmem } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { ackIntervalFor } from "../../services/watcher/src/stream/session/acknowledgement.ts";
import type { MadeChange } from "./batch-log.ts";
import type { FanOutServerHandlers } from "./fan-out-server.ts";
import type { FleetHandlers } from "./fleet.ts";
import { mebibytes, quantile } from "./proc.ts";
import { startCalled, startServer } from "./processes.ts";

/** The fan-out benchmark: one watcher, many simulated nodes, on one machine. It measures the rows of `docs/performance.md`. */
interface Row {
  readonly streams: number;
  readonly services: number;
  /** Number of single changes that are measured. */
  readonly changes: number;
  /** Time limit for all streams to get their first batch, and for one change to reach all streams, in milliseconds. */
  readonly limitMs: number;
}

const endpoints = 10;
const rows: readonly Row[] = [
  { streams: 100, services: 1_000, changes: 50, limitMs: 60_000 },
  { streams: 1_000, services: 5_000, changes: 50, limitMs: 60_000 },
  { streams: 5_000, services: 5_000, changes: 20, limitMs: 90_000 },
];

/**
 * Changes before the measurement: the first hundreds include compilation, which does not matter to a watcher that runs
 * for months.
 */
const warmUp = { changes: 400, limitMs: 15_000 };

const say = (line: string): void => void process.stdout.write(`${line}\n`);
const milliseconds = (ms: number): string => `${ms.toFixed(ms < 10 ? 2 : 0)} ms`;
const seconds = (ms: number): string => `${(ms / 1_000).toFixed(2)} s`;

/** Measures a row; returns the cells of its two tables. Errors: a stream is lost or late. */
async function measure({ streams, services, changes: count, limitMs: timeoutMs }: Row) {
  const server = startServer<FanOutServerHandlers>("fan-out-server");
  const load = startCalled<FleetHandlers>("fleet.ts", "load");
  // Until the server has read the next request of each stream, which is part of the cost.
  const settle = () => sleep(25 + streams / 25);

  /** Makes single changes; stops early after `limitMs`. Returns figures of one change. */
  async function single(count: number, limitMs: number) {
    const { receivedBytes: before } = await load.call("mark", {});
    const changes: MadeChange[] = [];
    let firstCpuMs: number | undefined;
    const stopAtMs = Date.now() + limitMs;
    // An even number, so that each endpoint is ready again at the end.
    while (changes.length < count && (Date.now() < stopAtMs || changes.length % 2 === 1)) {
      const { cpuMs, ...change } = await server.call("change", {});
      firstCpuMs ??= cpuMs;
      changes.push(change);
      await load.call("reachedRevision", { revision: change.revision, timeoutMs });
      await settle();
    }
    // The last acknowledgements are part of the cost.
    await sleep(2 * ackIntervalFor(streams));
    const cpuMs = (await server.call("usage", {})).cpuMs - (firstCpuMs ?? 0);
    const sinceRevision = (changes[0]?.revision ?? 1) - 1;
    const { latencies, receivedBytes } = await load.call("collect", { changes, sinceRevision });
    return { latencies, cpuMs: cpuMs / changes.length, bytes: (receivedBytes - before) / changes.length / streams };
  }

  try {
    const { address } = await server.call("start", { shape: { services, endpoints, nodes: streams } });
    const opened = await load.call("open", {
      options: { address, firstNode: 0, isExtended: true, streams },
      timeoutMs,
    });
    await settle();
    await single(warmUp.changes, warmUp.limitMs);
    const { latencies, cpuMs, bytes } = await single(count, timeoutMs);
    const after = await server.call("usage", {});
    return {
      change: [
        milliseconds(quantile(latencies.lastByChange, 0.5)),
        milliseconds(cpuMs),
        bytes.toFixed(0),
        mebibytes(after.rssBytes),
      ],
      cold: [seconds(opened.elapsedMs), mebibytes(opened.receivedBytes)],
    };
  } finally {
    await load.stop();
    await server.stop();
  }
}

function printTable(title: string, columns: readonly string[], cells: readonly (readonly string[])[]): void {
  const line = (all: readonly string[]): string => `| ${all.join(" | ")} |`;
  say([`${title}:\n`, line(columns), line(columns.map(() => "--:")), ...cells.map(line), ""].join("\n"));
}

const load = loadavg()[0] ?? 0;
const machine = `${availableParallelism()} cores (${cpus()[0]?.model}), ${mebibytes(totalmem())}`;
say(`Node.js ${process.version}, ${machine}, load before: ${load.toFixed(1)}\n`);
const changeCells: string[][] = [];
const coldCells: string[][] = [];
for (const row of rows) {
  const name = `${row.streams} × ${row.services} × ${endpoints}`;
  const result = await measure(row).catch((error: unknown) => {
    // A row that fails is reported, and the other rows still run.
    process.exitCode = 1;
    say(`${name}: ${error}`);
  });
  if (result === undefined) continue;
  changeCells.push([name, ...result.change]);
  coldCells.push([name, ...result.cold]);
}
const size = "streams × Services × endpoints";
printTable(
  "One endpoint changes",
  [size, "last node, median", "watcher CPU per change", "bytes per stream", "RSS"],
  changeCells,
);
printTable("All nodes connect at once", [size, "time until all are synced", "bytes"], coldCells);
