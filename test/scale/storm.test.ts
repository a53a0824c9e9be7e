import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Caller } from "./calls.ts";
import type { FanOutServerHandlers } from "./fan-out-server.ts";
import type { HollowNodesHandlers } from "./hollow-nodes.ts";
import { startCalled, startServer } from "./processes.ts";

/** Number of clients that connect at once to a watcher with one place. They ignore the pushback trailer. */
const streams = 1_000;
const timeoutMs = 120_000;

let server: Caller<FanOutServerHandlers>;
let load: Caller<HollowNodesHandlers>;

beforeEach(() => {
  server = startServer<FanOutServerHandlers>("fan-out-server");
  load = startCalled<HollowNodesHandlers>("hollow-nodes.ts", "load");
});

afterEach(async () => {
  await load.stop();
  await server.stop();
});

test("1 000 nodes that reconnect at once to a watcher with a small limit all get their views", {
  timeout: 300_000,
}, async () => {
  const shape = { services: 500, endpoints: 10, nodes: streams };
  const { address } = await server.call("start", { shape, maxWaiting: 1 });
  const options = { address, streams, firstNode: 0, isExtended: true, sampled: 5 };
  const opened = await load.call("open", { fleet: "nodes", options, timeoutMs });
  const storm = await load.call("storm", { fleet: "nodes", timeoutMs });
  // What all views share is computed before, so with more places, a fast machine has room for all nodes.
  expect(opened.retries + storm.retries).toBeGreaterThan(0);
  const { revision } = await server.call("change", {});
  await load.call("reachedRevision", { fleet: "nodes", revision, timeoutMs });
  const digests = await load.call("digests", { fleet: "nodes" });
  for (const [nodeName, digest] of Object.entries(digests)) {
    expect(digest).toEqual(await server.call("digest", { nodeName, isExtended: true }));
  }
});

test("nodes that resume or begin are served while changes go on, and settled nodes get every change", {
  timeout: 300_000,
}, async () => {
  const [settled, resuming, plain] = [200, 100, 50];
  const folder = mkdtempSync(join(tmpdir(), "kpng-digests-"));
  const heldDigests = join(folder, "digests");
  try {
    const shape = { services: 500, endpoints: 10, nodes: settled + resuming + plain };
    const { address } = await server.call("start", { shape });
    const open = (fleet: string, streams: number, firstNode: number, options: object) =>
      load.call("open", { fleet, options: { address, streams, firstNode, isExtended: true, ...options }, timeoutMs });
    await open("settled", settled, 0, { sampled: 5 });
    await server.call("writeDigests", { path: heldDigests, firstNode: settled, nodes: resuming });
    await server.call("age", { changes: 50 });
    await server.call("churn", { changesPerSecond: 100, settled });
    const [resumed] = await Promise.all([
      open("resuming", resuming, settled, { heldDigests }),
      open("plain", plain, settled + resuming, { isExtended: false, sampled: 5 }),
    ]);
    const { changes, sinceRevision } = await server.call("endChurn", {});
    expect(changes.length).toBeGreaterThan(0);
    // Less than half of a whole view.
    const whole = await open("whole", 1, settled, {});
    expect(resumed.receivedBytes / resuming).toBeLessThan(whole.receivedBytes / 2);
    const { revision } = await server.call("change", {});
    for (const fleet of ["settled", "resuming", "plain"]) {
      if (fleet !== "plain") await load.call("reachedRevision", { fleet, revision, timeoutMs });
      else await load.call("quiet", { fleet, quietMs: 500, timeoutMs });
      const isExtended = fleet !== "plain";
      for (const [nodeName, digest] of Object.entries(await load.call("digests", { fleet }))) {
        expect(digest).toEqual(await server.call("digest", { nodeName, isExtended }));
      }
    }
    // Throws if a settled stream was lost.
    const { latencies } = await load.call("collect", { fleet: "settled", changes, sinceRevision });
    expect(latencies.lastByChange.every((age) => age > 0)).toBe(true);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
