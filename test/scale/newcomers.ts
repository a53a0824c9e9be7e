import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FanOutServerHandlers } from "./fan-out-server.ts";
import type { FleetHandlers } from "./fleet.ts";
import { startCalled, startServer } from "./processes.ts";

/**
 * Measures how soon clients that connect at once get their first batch, beside settled streams and under changes. The
 * clients are plain: they send the requests of a Go client, without our features. Or they are our own and resume: they
 * hold the view of some changes ago. The rows are those of `docs/performance.md`.
 *
 * Server and load share all cores: V8 marks the heap on threads of its own, which would take most of a core that the
 * server is pinned to.
 */
interface Size {
  readonly settled: number;
  readonly newcomers: number;
  /** Number of changes that the newcomers have missed; undefined if they hold nothing. */
  readonly missed?: number | undefined;
  readonly services: number;
  readonly rates: readonly number[];
  readonly limitMs: number;
}

const sizes: readonly Size[] = [
  { settled: 0, newcomers: 600, services: 1_000, rates: [0, 30], limitMs: 30_000 },
  { settled: 1_000, newcomers: 300, services: 1_000, rates: [12], limitMs: 30_000 },
  { settled: 1_000, newcomers: 1_000, missed: 100, services: 5_000, rates: [0, 12], limitMs: 60_000 },
];

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function main(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "kpng-digests-"));
  try {
    for (const size of sizes) {
      const { settled, newcomers, missed, services, rates } = size;
      const kind = missed === undefined ? "newcomers" : `clients that resume after ${missed} changes`;
      say(`${settled} settled streams, ${newcomers} ${kind}, ${services} Services × 10 endpoints\n`);
      say("| changes/s | last one served | settled batches, p99 |");
      say(`|${" --: |".repeat(3)}`);
      for (const rate of rates) say(await measure(size, rate, join(folder, "digests")));
      say("");
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Returns one row of the table. */
async function measure(size: Size, changesPerSecond: number, path: string): Promise<string> {
  const { settled, newcomers, missed, services, limitMs } = size;
  const server = startServer<FanOutServerHandlers>("fan-out-server", "all");
  const settledNodes = startCalled<FleetHandlers>("fleet.ts", "all");
  // A process of its own, so that the settled nodes note their batches in time.
  const newNodes = startCalled<FleetHandlers>("fleet.ts", "all");
  try {
    const shape = { services, endpoints: 10, nodes: settled + newcomers };
    const { address } = await server.call("start", { shape });
    if (settled > 0) {
      const options = { addresses: [address], streams: settled, firstNode: 0, isExtended: true };
      await settledNodes.call("open", { options, timeoutMs: 60_000 });
    }
    if (missed !== undefined) {
      await server.call("writeDigests", { path, firstNode: settled, nodes: newcomers });
      await server.call("age", { changes: missed });
      if (settled > 0) await settledNodes.call("quiet", { quietMs: 300, timeoutMs: 60_000 });
    }
    if (settled > 0) await settledNodes.call("mark", {});
    await server.call("churn", { changesPerSecond });
    const isResuming = missed !== undefined;
    const held = isResuming ? { heldDigests: path } : {};
    const options = { addresses: [address], streams: newcomers, firstNode: settled, isExtended: isResuming, ...held };
    const opened = await newNodes
      .call("open", { options, timeoutMs: limitMs })
      .catch((error: unknown) => String(error).split("\n")[0]);
    const { changes, sinceRevision } = await server.call("endChurn", {});
    const hasAges = settled > 0 && changes.length > 0;
    const ages = hasAges ? await settledNodes.call("collect", { changes, sinceRevision }) : undefined;
    const age = ages === undefined ? "" : inMs(ages.latencies.p99);
    const served = typeof opened === "object" ? inMs(opened.elapsedMs) : opened;
    return `| ${[changesPerSecond, served, age].join(" | ")} |`;
  } finally {
    await settledNodes.stop();
    await newNodes.stop();
    await server.stop();
  }
}

function inMs(ms: number): string {
  return `${ms.toFixed(0)} ms`;
}

await main();
