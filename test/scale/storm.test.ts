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
