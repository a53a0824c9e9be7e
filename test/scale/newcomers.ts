import { parseArgs } from "node:util";
import type { Caller } from "./calls.ts";
import type { FanOutServerHandlers } from "./fan-out-server.ts";
import type { HollowNodesHandlers } from "./hollow-nodes.ts";
import { startCalled, startServer } from "./processes.ts";

/**
 * Measures how soon clients that connect at once get their first batch, beside settled streams and under changes. The
 * clients are plain: they send the requests of a Go client, without our features.
 *
 * Without options it measures the rows of `docs/performance.md`; with any option, one table of that size.
 */
const usage = `node test/scale/newcomers.ts [options]

  --settled <n>    streams of our own clients that have their views before (0)
  --newcomers <n>  plain clients that connect at once (600)
  --services <n>   Services with 10 endpoints each (1000)
  --rates <n,n>    changes per second; one row each (0,30)
  --limit <s>      time limit for all newcomers (30)
`;

interface Size {
  readonly settled: number;
  readonly newcomers: number;
  readonly services: number;
  readonly rates: readonly number[];
  readonly limitMs: number;
}

const standardSizes: readonly Size[] = [
  { settled: 0, newcomers: 600, services: 1_000, rates: [0, 30], limitMs: 30_000 },
  { settled: 1_000, newcomers: 300, services: 1_000, rates: [5, 12, 50], limitMs: 30_000 },
];

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      settled: { type: "string" },
      newcomers: { type: "string" },
      services: { type: "string" },
      rates: { type: "string" },
      limit: { type: "string" },
      help: { type: "boolean" },
    },
  });
  if (values.help) {
    say(usage);
    return;
  }
  const size: Size = {
    settled: Number(values.settled ?? 0),
    newcomers: Number(values.newcomers ?? 600),
    services: Number(values.services ?? 1_000),
    rates: (values.rates ?? "0,30").split(",").map(Number),
    limitMs: Number(values.limit ?? 30) * 1_000,
  };
  for (const one of Object.keys(values).length === 0 ? standardSizes : [size]) {
    say(`${one.settled} settled streams, ${one.newcomers} newcomers, ${one.services} Services × 10 endpoints\n`);
    say("| changes/s | last newcomer | p50 | p99 | retries | watcher CPU | age of settled batches, p50 | p99 |");
    say("| --: | --: | --: | --: | --: | --: | --: | --: |");
    for (const rate of one.rates) say(await measure(one, rate));
    say("");
  }
}

/** Returns one row of the table. */
async function measure({ settled, newcomers, services, limitMs }: Size, changesPerSecond: number): Promise<string> {
  const server: Caller<FanOutServerHandlers> = startServer<FanOutServerHandlers>("fan-out-server");
  const load: Caller<HollowNodesHandlers> = startCalled<HollowNodesHandlers>("hollow-nodes.ts", "load");
  try {
    const shape = { services, endpoints: 10, nodes: settled + newcomers };
    const { address } = await server.call("start", { shape });
    if (settled > 0) {
      const options = { address, streams: settled, firstNode: 0, isExtended: true };
      await load.call("open", { fleet: "settled", options, timeoutMs: 60_000 });
      await load.call("mark", { fleet: "settled" });
    }
    await server.call("churn", { changesPerSecond });
    const cpuBeforeMs = await server.call("cpu", {});
    const options = { address, streams: newcomers, firstNode: settled, isExtended: false };
    const opened = await load
      .call("open", { fleet: "newcomers", options, timeoutMs: limitMs })
      .catch((error: unknown) => String(error).split("\n")[0]);
    const cpuMs = (await server.call("cpu", {})) - cpuBeforeMs;
    const { changes, sinceRevision } = await server.call("endChurn", {});
    const hasAges = settled > 0 && changes.length > 0;
    const ages = hasAges ? await load.call("collect", { fleet: "settled", changes, sinceRevision }) : undefined;
    const first =
      typeof opened === "object"
        ? [opened.elapsedMs, opened.each.p50, opened.each.p99].map(inMs).concat(String(opened.retries))
        : [opened, "", "", ""];
    const settledAges = ages === undefined ? ["", ""] : [inMs(ages.latencies.p50), inMs(ages.latencies.p99)];
    return `| ${[changesPerSecond, ...first, inMs(cpuMs), ...settledAges].join(" | ")} |`;
  } finally {
    await load.stop();
    await server.stop();
  }
}

function inMs(ms: number): string {
  return `${ms.toFixed(0)} ms`;
}

await main();
