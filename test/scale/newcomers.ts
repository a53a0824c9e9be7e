import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FanOutServerHandlers } from "./fan-out-server.ts";
import type { FleetHandlers } from "./fleet.ts";
import { startCalled, startServer } from "./processes.ts";
import { sayTable } from "./report.ts";

/**
 * Measures how soon clients that connect at once get their first batch, beside settled streams and under changes. The
 * clients are plain: they send the requests of a Go client, without our features. Or they are our own and resume: they
 * hold the view of some changes ago. The rows are those of `docs/performance.md`, or are given as settled streams ×
 * newcomers × Services × changes/s × missed changes: `1000x1000x5000x12x100`; without the last, plain clients.
 *
 * Server and load share all cores: V8 marks the heap on threads of its own, which would take most of a core that the
 * server is pinned to.
 */
const standardRows = [
  ...["0x600x1000x0", "0x600x1000x30", "1000x300x1000x12"],
  ...["1000x1000x5000x0x100", "1000x1000x5000x12x100"],
];

interface Row {
  readonly settled: number;
  readonly newcomers: number;
  readonly services: number;
  readonly changesPerSecond: number;
  /** Number of changes that the newcomers have missed; undefined if they hold nothing. */
  readonly missed: number | undefined;
}

function readRow(text: string): Row {
  if (!/^\d+(x\d+){3,4}$/.test(text)) {
    throw new Error(`not settled x newcomers x Services x changes/s [x missed changes]: ${text}`);
  }
  const [settled = 0, newcomers = 0, services = 0, changesPerSecond = 0, missed] = text.split("x").map(Number);
  return { settled, newcomers, services, changesPerSecond, missed };
}

async function main(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "kpng-digests-"));
  const [, , ...given] = process.argv;
  try {
    const cells: (readonly string[])[] = [];
    for (const text of given.length > 0 ? given : standardRows) {
      cells.push([text.replaceAll("x", " × "), ...(await measure(readRow(text), join(folder, "digests")))]);
    }
    const size = "settled × newcomers × Services × changes/s (× missed)";
    sayTable([size, "last one served", "bytes each", "settled batches, p99"], cells);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Returns the cells of a row. */
async function measure(row: Row, path: string): Promise<readonly string[]> {
  const { settled, newcomers, missed, services, changesPerSecond } = row;
  const limitMs = 30_000 + (newcomers * services) / 50;
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
    if (typeof opened !== "object") return [opened ?? "", "", age];
    return [inMs(opened.elapsedMs), (opened.receivedBytes / newcomers).toFixed(0), age];
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
