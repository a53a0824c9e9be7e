import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { statSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { GrpcJsWatch } from "../../../../../test/peer/grpc-js-client.ts";
import { Store } from "../../store/store.ts";
import { endpoint, node, service, slice } from "../../testing/build.ts";
import { dialHttp2, RawWatch } from "../../testing/raw-watch.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

let store: Store;
let server: TestServer;
let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "kpng-serve-"));
  store = new Store();
  store.replace({ services: [service()], slices: [slice([endpoint("10.1.0.1")])], nodes: [node("n1")] });
});

afterEach(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

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

describe("one port speaks", () => {
  test("Connect, also as JSON", async () => {
    await serve();
    for (const useBinaryFormat of [true, false]) {
      const options = { baseUrl: `http://${server.address}`, httpVersion: "2" as const, useBinaryFormat };
      const answer = await createClient(PositionService, createConnectTransport(options)).check({});
      expect(answer.isStale).toBe(false);
    }
  });

  test("no HTTP/1.1: the connection ends, and the refusal is counted", async () => {
    await serve();
    await expect(fetch(`http://${server.address}/`)).rejects.toThrow();
    const refusals = () => server.metrics.getSingleMetricAsString("kpng_refused_total");
    await expect.poll(refusals).toContain('kpng_refused_total{reason="protocol"} 1');
  });

  test("gRPC over a unix socket that only owner and group may use", async () => {
    const path = join(folder, "api.sock");
    await serve({ listen: [`unix://${path}`] });
    expect(statSync(path).mode & 0o777).toBe(0o660);
    expect(await firstBatch(`unix://${path}`)).toBe(4);
  });
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

  test.each([
    ["another server's socket", "another process listens on it"],
    ["a file that is no socket", "the path is a file that is not a socket"],
  ])("fails if the path is that of %s", async (what, reason) => {
    const path = join(folder, "api.sock");
    await serve({ listen: [`unix://${path}`] });
    const taken = what.startsWith("another") ? path : join(folder, "file");
    writeFileSync(join(folder, "file"), "");
    await expect(serveStore(store, { listen: [`unix://${taken}`] })).rejects.toThrow(
      `[LISTEN_FAILED] cannot listen on unix://${taken}: ${reason}`,
    );
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

test("readers that stop cost only the memory of their own view", { timeout: 120_000 }, async () => {
  // More than the flow-control windows of HTTP/2 allow at once.
  const large = Array.from({ length: 200 }, (_, index) =>
    service({ name: `s${index}`, annotations: { text: "x".repeat(5_000) } }),
  );
  store.replace({ services: large });
  await serve();
  const good = new GrpcJsWatch(server.address, "local");
  await good.ask({ NodeName: "n1" });
  const stalled = Array.from({ length: 20 }, () => {
    const watch = new RawWatch(dialHttp2(server.address));
    watch.stream.pause();
    for (let asked = 0; asked < 30; asked++) watch.ask();
    return watch.session;
  });
  await expect.poll(() => server.subscribers.open.size).toBe(21);
  /** Makes changes of 200 kB, which the other reader receives, and returns the memory in use. */
  const change = async (count: number): Promise<number> => {
    for (let index = 0; index < count; index += 1) {
      const text = randomBytes(100_000).toString("hex");
      store.apply([{ kind: "put-service", service: service({ name: "changing", annotations: { text } }) }]);
      await good.ask({ NodeName: "n1" });
    }
    // The memory of a buffer is freed some time after the object.
    for (let count = 0; count < 3; count++) {
      collectGarbage();
      await turn();
    }
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  const before = await change(20);
  // Less than one copy of the changes that each of them has asked for.
  expect((await change(100)) - before).toBeLessThan(2 * 1024 ** 2);
  good.close();
  for (const session of stalled) session.destroy();
});
