import { get, type IncomingMessage } from "node:http";
import { loadavg } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import type { FanOutServerHandlers } from "./fan-out-server.ts";
import type { HollowNodesHandlers } from "./hollow-nodes.ts";
import { startCalled, startServer } from "./processes.ts";

/**
 * Measures what open status pages cost a watcher whose nodes keep up with constant changes: its CPU time without pages
 * and with them, in turns, and the events that each page received. CPU times are comparable on a busy machine.
 */
const usage = `node test/scale/status-page.ts [options]

  --streams <n>    hollow nodes (1000)
  --services <n>   Services with 10 endpoints each (5000)
  --rate <n>       changes per second (50)
  --pages <n,n>    open pages; a pair of rows each (1,16)
  --seconds <n>    length of each measurement (10)
  --turns <n>      measurements without pages and with them (4)
`;

const { values } = parseArgs({
  options: {
    streams: { type: "string", default: "1000" },
    services: { type: "string", default: "5000" },
    rate: { type: "string", default: "50" },
    pages: { type: "string", default: "1,16" },
    seconds: { type: "string", default: "10" },
    turns: { type: "string", default: "4" },
    help: { type: "boolean" },
  },
});

/** An open event stream. */
class OpenPage {
  bytes = 0;
  events = 0;
  readonly #response: IncomingMessage;

  private constructor(response: IncomingMessage) {
    this.#response = response;
    response.on("data", (chunk: Buffer) => {
      this.bytes += chunk.length;
      if (chunk.subarray(-2).toString() === "\n\n") this.events += 1;
    });
    response.on("error", () => undefined);
  }

  static open(address: string): Promise<OpenPage> {
    return new Promise((resolve, reject) => {
      const request = get(`http://${address}/live`, { agent: false }, (response) => {
        if (response.statusCode === 200) resolve(new OpenPage(response));
        else reject(new Error(`HTTP status ${response.statusCode}`));
      });
      request.on("error", reject);
    });
  }

  close(): void {
    this.#response.destroy();
  }
}

async function main(): Promise<void> {
  const [streams, services, rate] = [Number(values.streams), Number(values.services), Number(values.rate)];
  const measureMs = Number(values.seconds) * 1_000;
  const server = startServer<FanOutServerHandlers>("fan-out-server");
  const load = startCalled<HollowNodesHandlers>("hollow-nodes.ts", "load");
  try {
    const { address } = await server.call("start", { shape: { services, endpoints: 10, nodes: streams } });
    const options = { address, streams, firstNode: 0, isExtended: true };
    await load.call("open", { fleet: "nodes", options, timeoutMs: 120_000 });
    await server.call("churn", { changesPerSecond: rate, settled: 0 });
    await sleep(5_000);
    const cpuOf = async (): Promise<number> => {
      const before = await server.call("cpu", {});
      await sleep(measureMs);
      return ((await server.call("cpu", {})) - before) / Number(values.seconds);
    };
    process.stdout.write(
      `${streams} nodes, ${services} Services × 10, ${rate} changes/s, load ${loadavg()[0]?.toFixed(1)}\n\n`,
    );
    process.stdout.write(
      "| pages | CPU without, ms/s | with, ms/s | difference | events per page and second | KiB per event |\n",
    );
    process.stdout.write("| --: | --: | --: | --: | --: | --: |\n");
    for (const count of values.pages.split(",").map(Number)) {
      let [without, beside, events, bytes] = [0, 0, 0, 0];
      const turns = Number(values.turns);
      for (let turn = 0; turn < turns; turn += 1) {
        without += (await cpuOf()) / turns;
        const pages = await Promise.all(Array.from({ length: count }, () => OpenPage.open(address)));
        // The first event is the whole state.
        await sleep(2_000);
        for (const page of pages) [page.events, page.bytes] = [0, 0];
        beside += (await cpuOf()) / turns;
        for (const page of pages) {
          events += page.events;
          bytes += page.bytes;
          page.close();
        }
      }
      const share = `${(((beside - without) / without) * 100).toFixed(1)} %`;
      const perSecond = (events / count / turns / Number(values.seconds)).toFixed(2);
      const kibibytes = (bytes / Math.max(1, events) / 1_024).toFixed(1);
      process.stdout.write(
        `| ${[count, without.toFixed(0), beside.toFixed(0), share, perSecond, kibibytes].join(" | ")} |\n`,
      );
    }
    await server.call("endChurn", {});
  } finally {
    await load.stop();
    await server.stop();
  }
}

if (values.help === true) process.stdout.write(usage);
else await main();
