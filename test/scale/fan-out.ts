import { availableParallelism, cpus, loadavg, totalmem } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { ackIntervalFor } from "../../services/watcher/src/stream/session/acknowledgement.ts";
import type { MadeChange } from "./batch-log.ts";
import type { FanOutServerHandlers } from "./fan-out-server.ts";
import type { FleetHandlers } from "./fleet.ts";
import { mebibytes, quantile } from "./proc.ts";
import { type Relay, startCalled, startRelay, startServer } from "./processes.ts";
import { say, sayTable } from "./report.ts";

/**
 * The fan-out benchmark: one watcher, perhaps relays, and many simulated nodes, on one machine. It measures the rows of
 * `docs/performance.md`, or rows that are given as streams × Services × endpoints × relays: `10000x5000x10`,
 * `2000x5000x10x4`.
 */
interface Row {
  readonly streams: number;
  readonly services: number;
  /** Endpoints per Service. */
  readonly endpoints: number;
  /** Number of relays, among which the streams are divided; 0 for streams at the watcher itself. */
  readonly relays: number;
  /** Number of single changes that are measured. */
  readonly changes: number;
  /** Time limit for all streams to get their first batch, and for one change to reach all streams, in milliseconds. */
  readonly limitMs: number;
}

const standardRows = ["100x1000x10", "1000x5000x10", "5000x5000x10"];

function readRow(text: string): Row {
  const [streams = 0, services = 0, endpoints = 0, relays = 0] = text.split("x").map(Number);
  if (!/^\d+x\d+x\d+(x\d+)?$/.test(text)) throw new Error(`not streams x Services x endpoints [x relays]: ${text}`);
  const limitMs = 60_000 + streams * 6 + services * endpoints * 0.1;
  return { streams, services, endpoints, relays, changes: streams > 1_000 ? 20 : 50, limitMs };
}

/**
 * Changes before the measurement: the first hundreds include compilation, which does not matter to a watcher that runs
 * for months.
 */
const warmUp = { changes: 400, limitMs: 15_000 };

/** Number of Services that change together at the end. */
const atOnce = 1_000;

/** Most endpoints of a node: kubelets run 110 pods. Rows with few streams have nodes that do not connect. */
const podsPerNode = 100;

const milliseconds = (ms: number): string => `${ms.toFixed(ms < 10 ? 2 : 0)} ms`;
const seconds = (ms: number): string => `${(ms / 1_000).toFixed(2)} s`;

/** Measures a row; returns the cells of its two tables. Errors: a stream is lost or late. */
async function measure({ streams, services, endpoints, relays: relayCount, changes: count, limitMs: timeoutMs }: Row) {
  const server = startServer<FanOutServerHandlers>("fan-out-server");
  const relays: Relay[] = [];
  const load = startCalled<FleetHandlers>("fleet.ts", "load");
  // Until the server has read the next request of each stream, which is part of the cost.
  const settle = () => sleep(25 + streams / 25);

  const relayUsage = () => relays.map(({ usage }) => usage());
  const cpuOf = async () =>
    (await server.call("usage", {})).cpuMs + relayUsage().reduce((sum, { cpuMs }) => sum + cpuMs, 0);

  /** Makes single changes; stops early after `limitMs`. Returns figures of one change. */
  async function single(count: number, limitMs: number) {
    const { receivedBytes: before } = await load.call("mark", {});
    const changes: MadeChange[] = [];
    const firstCpuMs = await cpuOf();
    const stopAtMs = Date.now() + limitMs;
    // An even number, so that each endpoint is ready again at the end.
    while (changes.length < count && (Date.now() < stopAtMs || changes.length % 2 === 1)) {
      const change = await server.call("change", {});
      changes.push(change);
      await load.call("reachedRevision", { revision: change.revision, timeoutMs });
      await settle();
    }
    // The last acknowledgements are part of the cost.
    await sleep(2 * ackIntervalFor(streams));
    const cpuMs = (await cpuOf()) - firstCpuMs;
    const sinceRevision = (changes[0]?.revision ?? 1) - 1;
    // The revisions of relays are their own; each of these changes makes one.
    const { latencies, receivedBytes } = await load.call("collect", { changes, sinceRevision });
    return { latencies, cpuMs: cpuMs / changes.length, bytes: (receivedBytes - before) / changes.length / streams };
  }

  try {
    const nodes = Math.max(streams, Math.ceil((services * endpoints) / podsPerNode));
    const { address } = await server.call("start", { shape: { services, endpoints, nodes } });
    const { rssBytes: rssBefore } = await server.call("usage", {});
    for (let index = 0; index < relayCount; index += 1) relays.push(await startRelay(address));
    const addresses = relayCount === 0 ? [address] : relays.map((relay) => relay.address);
    const opened = await load.call("open", {
      options: { addresses, firstNode: 0, isExtended: true, streams },
      timeoutMs,
    });
    await settle();
    const cold = await server.call("usage", {});
    await single(warmUp.changes, warmUp.limitMs);
    const { latencies, cpuMs, bytes } = await single(count, timeoutMs);
    const after = await server.call("usage", {});
    const beforeBurstMs = await cpuOf();
    await server.call("age", { changes: atOnce });
    await load.call("quiet", { quietMs: 500, timeoutMs });
    const burstCpuMs = (await cpuOf()) - beforeBurstMs;
    return {
      change: [
        milliseconds(quantile(latencies.lastByChange, 0.5)),
        milliseconds(cpuMs),
        milliseconds(burstCpuMs),
        bytes.toFixed(0),
        `${after.longestTurnMs.toFixed(0)} ms`,
        [after, ...relayUsage()].map(({ rssBytes }) => mebibytes(rssBytes)).join(" + "),
      ],
      cold: [
        seconds(opened.elapsedMs),
        mebibytes(opened.receivedBytes),
        `${cold.longestTurnMs.toFixed(0)} ms`,
        mebibytes(rssBefore),
      ],
    };
  } finally {
    await load.stop();
    for (const relay of relays) await relay.stop();
    await server.stop();
  }
}

const load = loadavg()[0] ?? 0;
const machine = `${availableParallelism()} cores (${cpus()[0]?.model}), ${mebibytes(totalmem())}`;
say(`Node.js ${process.version}, ${machine}, load before: ${load.toFixed(1)}\n`);
const changeCells: string[][] = [];
const coldCells: string[][] = [];
const [, , ...given] = process.argv;
for (const text of given.length > 0 ? given : standardRows) {
  const name = text.replaceAll("x", " × ");
  const result = await measure(readRow(text)).catch((error: unknown) => {
    // A row that fails is reported, and the other rows still run.
    process.exitCode = 1;
    say(`${name}: ${error}`);
  });
  if (result === undefined) continue;
  changeCells.push([name, ...result.change]);
  coldCells.push([name, ...result.cold]);
}
const size = "streams × Services × endpoints (× relays)";
say("One endpoint changes:\n");
sayTable(
  [
    size,
    "last node, median",
    "CPU per change",
    `CPU of ${atOnce} at once`,
    "bytes per stream",
    "longest turn",
    "RSS of watcher + relays",
  ],
  changeCells,
);
say("All nodes connect at once:\n");
sayTable([size, "time until all are synced", "bytes", "longest turn of the watcher", "RSS before"], coldCells);
