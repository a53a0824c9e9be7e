import { statSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { connect as connectHttp2 } from "node:http2";
import { connect as connectTcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { create, toBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { NodeViewService, type WatchNodeViewResponse } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import { Sets, WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { GrpcJsWatch } from "../../../../../test/peer/grpc-js-client.ts";
import { Store } from "../../store/store.ts";
import { endpoint, node, service, slice } from "../../testing/build.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";

// Heap sizes are comparable only after a garbage collection, and vitest's workers run without the flag for it.
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

function cases(result: IteratorResult<WatchNodeViewResponse>): unknown {
  return result.done ? "the end" : result.value.ops.map((op) => op.Op.case);
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
  test("Connect, also as JSON, with a watch for clients without bidirectional streams", async () => {
    await serve();
    for (const useBinaryFormat of [true, false]) {
      const options = { baseUrl: `http://${server.address}`, httpVersion: "2" as const, useBinaryFormat };
      const client = createClient(NodeViewService, createConnectTransport(options));
      expect((await client.getNodeView({ nodeName: "n1" })).items[0]?.endpoints[0]?.IPs?.V4).toEqual(["10.1.0.1"]);
      const stop = new AbortController();
      const iterator = client.watchNodeView({ nodeName: "n1" }, { signal: stop.signal })[Symbol.asyncIterator]();
      expect(cases(await iterator.next())).toEqual(["Reset", "Set", "Set", "Set", "Sync"]);
      const second = iterator.next();
      store.apply([
        { kind: "put-service", service: service({ healthCheckNodePort: useBinaryFormat ? 30_000 : 30_001 }) },
      ]);
      expect(cases(await second)).toEqual(["Set", "Sync"]);
      const subscribers = async () =>
        (await server.metrics.getSingleMetric("kpng_subscribers")?.get())?.values[0]?.value;
      expect(await subscribers()).toBe(1);
      stop.abort();
      await expect.poll(subscribers).toBe(0);
    }
  });

  test("no HTTP/1.1: the connection ends, and the refusal is counted", async () => {
    await serve();
    await expect(fetch(`http://${server.address}/`)).rejects.toThrow();
    const refused = async () => (await server.metrics.getSingleMetric("kpng_refused_total")?.get())?.values ?? [];
    await expect.poll(async () => (await refused()).find(({ labels }) => labels.reason === "protocol")?.value).toBe(1);
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
    const { spawnSync } = await import("node:child_process");
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

describe("a bad client does not affect others", () => {
  const path = `/${Sets.typeName}/Watch`;

  /** Sends raw bytes as the body of a gRPC call and returns the status that the server closes it with. */
  async function callWith(body: Buffer, end: boolean): Promise<string> {
    const session = connectHttp2(`http://${server.address}`);
    const stream = session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      te: "trailers",
    });
    let status = "";
    const note = (headers: Record<string, unknown>): void => {
      status = String(headers["grpc-status"] ?? status);
    };
    stream
      .on("response", note)
      .on("trailers", note)
      .on("error", () => undefined)
      .on("end", () => stream.end())
      .resume();
    stream.write(body);
    if (end) stream.end();
    await new Promise((resolve) => stream.once("close", resolve));
    session.destroy();
    return status;
  }

  const frame = (bytes: Uint8Array, length = bytes.length): Buffer => {
    const head = Buffer.alloc(5);
    head.writeUInt32BE(length, 1);
    return Buffer.concat([head, bytes]);
  };

  test.each([
    ["that sends bytes that cannot be decoded", frame(Buffer.from([0xff, 0xff, 0xff])), true, "3"],
    ["that sends an incomplete message", frame(Buffer.from([0x0a]), 100), true, "3"],
    ["that sends a message over the size limit", frame(Buffer.alloc(0), 1 << 30), false, "8"],
    ["that sends a name that is not UTF-8", frame(Buffer.from([0x0a, 0x02, 0xc3, 0x28])), true, "3"],
  ])("%s", async (_, body, end, status) => {
    await serve();
    const good = new GrpcJsWatch(server.address, "local");
    await good.ask({ NodeName: "n1" });
    expect(await callWith(body, end)).toBe(status);
    store.apply([{ kind: "put-service", service: service({ name: "other" }) }]);
    expect(await good.ask({ NodeName: "n1" })).toHaveLength(2);
    good.close();
  });

  test("that sends nothing, half a preface, or garbage", async () => {
    await serve();
    const [host = "", port = ""] = server.address.split(":");
    for (const bytes of [
      "",
      "PRI * HTT",
      "\u0000\u0001\u0002garbage\r\n\r\n",
      `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${"\uffff".repeat(100)}`,
    ]) {
      const socket = connectTcp(Number(port), host);
      socket.on("error", () => undefined);
      await new Promise((resolve) => socket.write(bytes === "" ? "\n" : bytes, resolve));
      socket.resetAndDestroy();
    }
    expect(await firstBatch(server.address)).toBe(4);
  });
});

test("readers that stop cost only the memory of their own view", { timeout: 120_000 }, async () => {
  const big = Array.from({ length: 2_000 }, (_, index) =>
    service({ name: `s${index}`, annotations: { text: "x".repeat(500) } }),
  );
  await serve();
  store.replace({ services: big });
  const good = new GrpcJsWatch(server.address, "local");
  await good.ask({ NodeName: "n1" });
  const stalled = Array.from({ length: 20 }, () => {
    const session = connectHttp2(`http://${server.address}`);
    const stream = session.request({
      ":method": "POST",
      ":path": `/${Sets.typeName}/Watch`,
      "content-type": "application/grpc",
      te: "trailers",
    });
    stream.on("error", () => undefined).pause();
    stream.write(
      Buffer.concat([
        Buffer.from([0, 0, 0, 0, 4]),
        toBinary(WatchReqSchema, create(WatchReqSchema, { NodeName: "n1" })),
      ]),
    );
    return session;
  });
  await expect
    .poll(async () => (await server.metrics.getSingleMetric("kpng_subscribers")?.get())?.values[0]?.value)
    .toBe(21);
  const round = async (count: number): Promise<number> => {
    for (let index = 0; index < count; index += 1) {
      store.apply([
        { kind: "put-service", service: service({ name: "changing", annotations: { count: `${Math.random()}` } }) },
      ]);
      await good.ask({ NodeName: "n1" });
    }
    collectGarbage();
    return process.memoryUsage().heapUsed;
  };
  const before = await round(20);
  const after = await round(200);
  // 200 more changes, which stalled readers do not read: memory for these readers must not grow.
  expect(after - before).toBeLessThan(20 * 1024 * 1024);
  good.close();
  for (const session of stalled) session.destroy();
});
