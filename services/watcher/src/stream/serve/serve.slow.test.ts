import { spawnSync } from "node:child_process";
import { statSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { endpoint, node, service, slice } from "@kpng/source/testing/build.ts";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { GrpcJsWatch } from "../../../../../test/peer/grpc-js-client.ts";
import { Store } from "../../store/store.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";

let store: Store;
let server: TestServer;
let folder: string;

beforeEach(() => {
  folder = temporaryFolder();
  store = new Store();
  store.replace({ services: [service()], slices: [slice([endpoint("10.1.0.1")])], nodes: [node("n1")] });
});

afterEach(() => server.stop());

async function serve(options: Parameters<typeof serveStore>[1] = {}): Promise<void> {
  server = await serveStore(store, options);
}

/** Receives one whole view over grpc-js, as a node does. */
async function firstBatch(address: string): Promise<number> {
  const watch = new GrpcJsWatch(address, "local");
  try {
    return (await watch.ask({ NodeName: "n1" })).length;
  } finally {
    watch.close();
  }
}

test("HTTP/1.1 is not spoken: the connection ends, and the refusal is counted", async () => {
  await serve();
  await expect(fetch(`http://${server.address}/`)).rejects.toThrow();
  const refusals = () => server.metrics.getSingleMetricAsString("kpng_refused_total");
  await expect.poll(refusals).toContain('kpng_refused_total{reason="protocol"} 1');
});

describe("listening", () => {
  test("takes over the socket of a watcher that was killed", async () => {
    const path = join(folder, "api.sock");
    // A process that is killed leaves its socket behind.
    spawnSync(process.execPath, [
      "-e",
      `require("net").createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, "SIGKILL"))`,
    ]);
    expect(statSync(path).isSocket()).toBe(true);
    await serve({ listen: [`unix://${path}`] });
    expect(await firstBatch(`unix://${path}`)).toBe(4);
  });

  test("fails if a port is in use, and opens no other address", async () => {
    await serve();
    const path = join(folder, "api.sock");
    const listen = [`unix://${path}`, `tcp://${server.address}`];
    await expect(serveStore(store, { listen })).rejects.toThrow(/\[LISTEN_FAILED\] cannot listen on tcp:/);
    expect(statSync(path, { throwIfNoEntry: false })).toBeUndefined();
  });
});
