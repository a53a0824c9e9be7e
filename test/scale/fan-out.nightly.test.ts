import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { MadeChange } from "./batches.ts";
import type { Caller } from "./calls.ts";
import type { FleetOptions } from "./hollow-fleet.ts";
import type { HollowNodesHandlers } from "./hollow-nodes.ts";
import { measureRow, type RowOptions } from "./measure-row.ts";
import { startCalled } from "./processes.ts";
import { type OwnServer, startOwnServer } from "./servers.ts";

/**
 * Small runs of the benchmark: they check that its results are correct and what must hold at every size. No test checks
 * a duration, because the machine may be busy.
 */
const shape = { services: 100, endpoints: 10, nodes: 50 };

const small: RowOptions = {
  shape,
  streams: 50,
  isExtended: true,
  tls: undefined,
  changes: 20,
  isCold: true,
  hasRolling: false,
  limitMs: 60_000,
};

describe("streams hold the views of the store", () => {
  const rows: readonly (Partial<RowOptions> & { readonly name: string })[] = [
    { name: "after changes and a rolling update of 1 000 pods", hasRolling: true },
    { name: "with the fields that a Go client requests", isExtended: false },
  ];

  test.each(rows)("$name", { timeout: 120_000 }, async ({ name: _, ...fields }) => {
    const options = { ...small, ...fields };
    const server = await startOwnServer(options.shape, options.tls);
    // Rejects if a sampled stream does not hold the view of the store.
    const result = await measureRow(server, options, () => undefined).finally(() => server.stop());
    expect(result.checkedStreams).toBe(3);
    // Single changes give one batch per stream and change.
    expect(result.single.latencies.count).toBe(options.streams * options.changes);
  });
});

describe("readers that stop reading", () => {
  let server: OwnServer;
  let load: Caller<HollowNodesHandlers>;

  beforeEach(async () => {
    server = await startOwnServer(shape, undefined);
    load = startCalled<HollowNodesHandlers>("hollow-nodes.ts", "load");
  });

  afterEach(async () => {
    await load.stop();
    await server.stop();
  });

  function open(fleet: string, fields: Partial<FleetOptions> = {}) {
    const options = { address: server.address, streams: 50, firstNode: 0, isExtended: true, ...fields };
    return load.call("open", { fleet, options, timeoutMs: 60_000 });
  }

  /** Makes single changes, and returns the bytes that a reader received for one. */
  async function singleChanges(): Promise<number> {
    const count = 10;
    const mark = await load.call("mark", { fleet: "readers" });
    const changes: MadeChange[] = [];
    for (let index = 0; index < count; index += 1) {
      changes.push(await server.change());
      await told(changes.at(-1)?.revision ?? 0);
    }
    const sinceRevision = (changes[0]?.revision ?? 1) - 1;
    const collected = await load.call("collect", { fleet: "readers", changes, sinceRevision });
    expect(collected.latencies.count).toBe(count * 50);
    return (collected.receivedBytes - mark.receivedBytes) / count / 50;
  }

  async function told(revision: number): Promise<void> {
    await load.call("reachedRevision", { fleet: "readers", revision, timeoutMs: 60_000 });
  }

  /** Makes thousands of changes; returns their number and the growth of the server's memory. */
  async function churn(): Promise<{ readonly changes: number; readonly grownBytes: number }> {
    const before = await server.usage(true);
    const { changes } = await server.calls.call("play", { script: "churn", timeoutMs: 60_000 });
    await told(changes.at(-1)?.revision ?? 0);
    const after = await server.usage(true);
    return { changes: changes.length, grownBytes: after.heapBytes - before.heapBytes };
  }

  test("stalled readers neither grow the server's memory nor delay batches of other readers", {
    timeout: 180_000,
  }, async () => {
    await open("readers", { sampled: 5 });
    const without = await singleChanges();
    // The streams of one connection share its socket, so the kernel buffers of some megabytes are full soon.
    await open("deaf", { firstNode: 50, stallAfterBatches: 0, streamsPerConnection: 50 });
    await open("stuck", { firstNode: 100, stallAfterBatches: 1, streamsPerConnection: 50 });
    // The first round fills all bounded buffers. Growth in the second round would have no bound.
    await churn();
    const { changes, grownBytes } = await churn();
    const queuedBytes = 100 * changes * without;
    await told(await server.calls.call("restore", { script: "churn" }));
    expect(grownBytes / queuedBytes).toBeLessThan(0.1);
    expect((await singleChanges()) / without).toBeLessThan(1.1);
    for (const [nodeName, held] of Object.entries(await load.call("digests", { fleet: "readers" }))) {
      expect(held, nodeName).toEqual(await server.calls.call("digest", { nodeName, isExtended: true }));
    }
  });
});
