import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { freePorts } from "../cluster/ports.ts";
import type { Caller } from "./calls.ts";
import type { FanOutServerHandlers } from "./fan-out-server.ts";
import type { HollowNodesHandlers } from "./hollow-nodes.ts";
import { mebibytes, quantile, usageOf } from "./proc.ts";
import { startCalled, startProgram, startServer } from "./processes.ts";

/**
 * Compares one watcher with several relays on the same machine that share its streams, as a way to use more cores.
 */
const usage = `node test/scale/relays.ts [options]

  --streams <n>   hollow nodes (1000)
  --services <n>  Services, of 10 endpoints each (200)
  --relays <n,n>  number of relays that share the streams; 0 is the watcher alone (0,1,2,4)
  --changes <n>   single changes that are measured (20)
`;

const timeoutMs = 600_000;

interface Row {
  readonly relays: number;
  /** CPU time of watcher and relays for one change. */
  readonly cpuMs: number;
  /** Median time from the change until the last node had it. */
  readonly lastMs: number;
  readonly rssBytes: number;
}

interface RowOptions {
  readonly streams: number;
  readonly services: number;
  readonly changes: number;
}

interface Relay {
  readonly address: string;
  readonly pid: number;
  stop(): Promise<void>;
}

async function startRelay(upstream: string): Promise<Relay> {
  const [port = 0] = await freePorts(1);
  const address = `127.0.0.1:${port}`;
  const main = fileURLToPath(import.meta.resolve("../../services/cli/src/main.ts"));
  const args = [main, "api", "--api", upstream, "to-api", "--listen", `tcp://${address}`, "--drain-time", "0"];
  const child = startProgram(process.execPath, args, "server");
  const gone = new Promise((resolve) => child.once("exit", resolve));
  await new Promise<void>((resolve, reject) => {
    let said = "";
    child.stderr?.on("data", (chunk: Buffer) => {
      said += chunk;
      if (said.includes("upstream watcher in sync")) resolve();
    });
    child.once("exit", () => reject(new Error(`the relay exited; its output: ${said}`)));
  });
  const stop = async (): Promise<void> => {
    child.kill("SIGKILL");
    await gone;
  };
  return { address, pid: child.pid ?? 0, stop };
}

async function measure(relays: number, options: RowOptions): Promise<Row> {
  const server = startServer<FanOutServerHandlers>("fan-out-server");
  const load = startCalled<HollowNodesHandlers>("hollow-nodes.ts", "load");
  const started: Relay[] = [];
  try {
    const shape = { services: options.services, endpoints: 10, nodes: options.streams };
    const { address } = await server.call("start", { shape });
    for (let count = 0; count < relays; count++) started.push(await startRelay(address));
    return { relays, ...(await measureChanges(server, load, started, address, options)) };
  } finally {
    await load.stop();
    for (const relay of started) await relay.stop();
    await server.stop();
  }
}

async function measureChanges(
  server: Caller<FanOutServerHandlers>,
  load: Caller<HollowNodesHandlers>,
  relays: readonly Relay[],
  watcher: string,
  { streams, changes }: RowOptions,
): Promise<Omit<Row, "relays">> {
  const addresses = relays.length === 0 ? [watcher] : relays.map(({ address }) => address);
  const share = Math.ceil(streams / addresses.length);
  const fleets = addresses.map((address, index) => ({
    fleet: String(index),
    options: { address, streams: Math.min(share, streams - index * share), firstNode: index * share, isExtended: true },
  }));
  for (const fleet of fleets) await load.call("open", { ...fleet, timeoutMs });
  const cpu = async (): Promise<number> =>
    relays.reduce((sum, { pid }) => sum + usageOf(pid).cpuMs, await server.call("cpu", {}));
  const all = <T>(one: (fleet: string) => Promise<T>): Promise<T[]> =>
    Promise.all(fleets.map(({ fleet }) => one(fleet)));
  const makeChange = async (count: number): Promise<number> => {
    const { atMs } = await server.call("change", {});
    await all((fleet) => load.call("reachedBatches", { fleet, count, timeoutMs }));
    const collected = await all((fleet) => load.call("collect", { fleet, changes: [], sinceRevision: 0 }));
    return Math.max(...collected.map(({ lastAtMs }) => lastAtMs)) - atMs;
  };
  // The first batch counts as one. The first change also fills caches.
  await makeChange(2);
  const before = await cpu();
  const lasts: number[] = [];
  for (let made = 0; made < changes; made++) lasts.push(await makeChange(3 + made));
  const cpuMs = ((await cpu()) - before) / changes;
  const { rssBytes } = await server.call("usage", { settle: false });
  const sum = relays.reduce((total, { pid }) => total + usageOf(pid).rssBytes, rssBytes);
  return { cpuMs, lastMs: quantile(lasts, 0.5), rssBytes: sum };
}

const { values } = parseArgs({
  options: {
    streams: { type: "string", default: "1000" },
    services: { type: "string", default: "200" },
    relays: { type: "string", default: "0,1,2,4" },
    changes: { type: "string", default: "20" },
    help: { type: "boolean", default: false },
  },
});
if (values.help) {
  process.stdout.write(usage);
} else {
  const options = {
    streams: Number(values.streams),
    services: Number(values.services),
    changes: Number(values.changes),
  };
  process.stdout.write(
    `| relays that share ${options.streams} streams | CPU per change, all | last node, median | RSS, all |\n`,
  );
  process.stdout.write("|--:|--:|--:|--:|\n");
  for (const relays of values.relays.split(",").map(Number)) {
    const row = await measure(relays, options);
    const cells = [row.relays, `${row.cpuMs.toFixed(1)} ms`, `${row.lastMs.toFixed(0)} ms`, mebibytes(row.rssBytes)];
    process.stdout.write(`| ${cells.join(" | ")} |\n`);
  }
}
