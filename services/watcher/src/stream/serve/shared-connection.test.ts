import type { ClientHttp2Session } from "node:http2";
import { expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { node, service } from "../../testing/build.ts";
import { dialHttp2, RawWatch } from "../../testing/raw-watch.ts";
import { serveStore } from "../../testing/serve-store.ts";

const nodeCount = 100;

// A proxy in front of the watcher may carry the streams of many nodes on one connection.
test("a hundred nodes that resume over one connection are served about as fast as over a hundred", {
  timeout: 120_000,
}, async () => {
  const names = Array.from({ length: nodeCount }, (_, at) => `n${at}`);
  const store = new Store();
  store.replace({ services: [service()], slices: [], nodes: names.map((name) => node(name)) });
  const server = await serveStore(store, { drainMs: 0 });
  const dial = (): ClientHttp2Session => dialHttp2(server.address).setMaxListeners(0);
  const resumeAll = async (sessionOf: () => ClientHttp2Session): Promise<number> => {
    const startMs = performance.now();
    const watches = names.map(
      (NodeName, at) => new RawWatch(sessionOf(), { NodeName, HeldDigests: new Uint8Array(8_192).fill(at) }),
    );
    await Promise.all(watches.map((watch) => watch.received()));
    const tookMs = performance.now() - startMs;
    for (const { session } of watches) session.destroy();
    return tookMs;
  };
  await resumeAll(dial);
  const apart = await resumeAll(dial);
  const shared = dial();
  const together = await resumeAll(() => shared);
  process.stdout.write(`${together.toFixed(0)} ms over one connection, ${apart.toFixed(0)} ms over ${nodeCount}\n`);
  expect(together).toBeLessThan(5 * apart);
  await server.stop();
});
