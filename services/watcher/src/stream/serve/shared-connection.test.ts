import type { ClientHttp2Session } from "node:http2";
import { setTimeout as realTime } from "node:timers/promises";
import { node, service } from "@kpng/source/testing/build.ts";
import { afterEach, expect, test, vi } from "vitest";
import { Store } from "../../store/store.ts";
import { dialHttp2, RawWatch } from "../../testing/raw-watch.ts";
import { serveStore } from "../../testing/serve-store.ts";

const nodeCount = 100;

afterEach(() => void vi.useRealTimers());

// A proxy in front of the watcher may carry the streams of many nodes on one connection.
test("a hundred nodes that resume over one connection are all served before any time has passed", {
  timeout: 120_000,
}, async () => {
  const names = Array.from({ length: nodeCount }, (_, at) => `n${at}`);
  const store = new Store();
  store.replace({ services: [service()], slices: [], nodes: names.map((name) => node(name)) });
  const server = await serveStore(store, { drainMs: 0 });
  const session: ClientHttp2Session = dialHttp2(server.address).setMaxListeners(0);
  // The clock of the watcher stands still: a request that had to wait for a moment would not be answered.
  vi.useFakeTimers({ toFake: ["performance", "setTimeout"] });
  const watches = names.map(
    (NodeName, at) => new RawWatch(session, { NodeName, HeldDigests: new Uint8Array(8_192).fill(at) }),
  );
  const served = Promise.all(watches.map((watch) => watch.received()));
  await Promise.race([served, realTime(30_000)]);
  vi.useRealTimers();
  expect(watches.filter(({ byteCount }) => byteCount > 0)).toHaveLength(nodeCount);
  session.destroy();
  await server.stop();
});
