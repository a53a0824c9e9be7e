import type { ClientHttp2Session } from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { maxPushbackMs } from "@kpng/process/connection/retry-pushback.ts";
import { dialHttp2, RawWatch } from "../../services/watcher/src/testing/raw-watch.ts";
import type { FanOutServerHandlers } from "./fan-out-server.ts";
import { startServer } from "./processes.ts";

/**
 * Measures what refused clients cost a watcher that serves no client, because its source has not listed the cluster
 * yet. All places for waiting streams are taken. Each client has a connection of its own, is refused, and asks again
 * when it was told to: on the same connection, as our backends and Go's gRPC do, or on a new one.
 *
 * `npm run bench -- refusals` measures the rows of `docs/performance.md`, in twelve minutes; `npm run bench -- refusals
 * 1000 again` one row.
 */
const standardRows: readonly Row[] = [
  { clients: 1_000, connects: "once" },
  { clients: 1_000, connects: "again" },
  { clients: 5_000, connects: "once" },
  { clients: 5_000, connects: "again" },
];

interface Row {
  readonly clients: number;
  /** Whether a client keeps its connection after a refusal, or opens another one for each attempt. */
  readonly connects: "once" | "again";
}

/** Places for waiting streams. */
const places = 64;

/** By then, each client has retried once. */
const settleMs = maxPushbackMs;

const measuredMs = 20_000;

/** Maximum number of clients in their first attempt: more would only fill the listen queue. */
const maxDialling = 100;

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Returns one row of the table. */
async function measure({ clients, connects }: Row): Promise<string> {
  const server = startServer<FanOutServerHandlers>("fan-out-server");
  const stop = new AbortController();
  let refusals = 0;
  try {
    const shape = { services: 0, endpoints: 0, nodes: 0 };
    const { address } = await server.call("start", { shape, maxWaiting: places, hasLists: false });
    const sessions = new Map<string, ClientHttp2Session>();
    const tryOnce = async (NodeName: string): Promise<number> => {
      const session = sessions.get(NodeName) ?? dialHttp2(address);
      const watch = new RawWatch(session, { NodeName });
      await watch.ended;
      if (connects === "again") session.destroy();
      else sessions.set(NodeName, session);
      if (watch.pushback === "undefined") throw new Error(`${NodeName} was not told when to retry`);
      refusals += 1;
      return Number(watch.pushback);
    };
    for (let place = 0; place < places; place += 1)
      void new RawWatch(dialHttp2(address), { NodeName: `waits-${place}` });
    while ((await server.call("waiting", {})) < places) await sleep(10);
    const retry = async (name: string, firstMs: number): Promise<void> => {
      let delayMs = firstMs;
      while (true) {
        await sleep(delayMs, undefined, { signal: stop.signal });
        delayMs = await tryOnce(name);
      }
    };
    const beganAtMs = performance.now();
    const beganCpuMs = await server.call("cpu", {});
    for (let first = 0; first < clients; first += maxDialling) {
      const names = Array.from(
        { length: Math.min(maxDialling, clients - first) },
        (_, index) => `node-${first + index}`,
      );
      const delays = await Promise.all(names.map(tryOnce));
      for (const [index, name] of names.entries()) retry(name, delays[index] ?? 0).catch(fail(stop.signal));
    }
    const firstCpuMs = (await server.call("cpu", {})) - beganCpuMs;
    await sleep(Math.max(0, settleMs - (performance.now() - beganAtMs)));
    const [before, beforeCpuMs, beforeMs] = [refusals, await server.call("cpu", {}), performance.now()];
    await sleep(measuredMs);
    const cpuMs = (await server.call("cpu", {})) - beforeCpuMs;
    const [count, elapsedMs] = [refusals - before, performance.now() - beforeMs];
    const cells = [
      clients,
      connects === "once" ? "kept" : "new for each attempt",
      `${(firstCpuMs / clients).toFixed(2)} ms`,
      ((count * 1_000) / elapsedMs).toFixed(0),
      `${(cpuMs / count).toFixed(2)} ms`,
      `${((100 * cpuMs) / elapsedMs).toFixed(1)} %`,
    ];
    return `| ${cells.join(" | ")} |`;
  } finally {
    stop.abort();
    await server.stop();
  }
}

/** Ends the benchmark when a client fails before `signal` aborts. */
function fail(signal: AbortSignal): (error: unknown) => void {
  return (error) => {
    if (!signal.aborted) throw error;
  };
}

const [count, connects] = process.argv.slice(2);
const row: Row = { clients: Number(count), connects: connects === "again" ? "again" : "once" };
say("| clients | connection | first refusal, watcher CPU | refusals/s | watcher CPU for each | share of a core |");
say("| --: | --- | --: | --: | --: | --: |");
for (const one of count === undefined ? standardRows : [row]) say(await measure(one));
process.exit();
