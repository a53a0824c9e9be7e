import { type AddressInfo, createServer } from "node:net";
import { create, toBinary } from "@bufbuild/protobuf";
import { Feature, type OpItem, ServiceSchema, Set as WireSet } from "@kpng/model/gen/localv1/api_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { expect, test } from "vitest";
import { put, putEndpoint, putService, readCapture, reset, sync } from "../testing/ops.ts";
import { playWatcher, silence } from "../testing/played-watcher.ts";
import type { Batch } from "../types/sync-update.ts";
import { watchBatches } from "./watch-batches.ts";

async function firstBatch(ops: readonly OpItem[], maxMessageBytes?: number): Promise<Batch | undefined> {
  await using watcher = await playWatcher((asked) => (asked.index === 0 ? ops : silence(asked)));
  const transport = dial({ api: watcher.address, maxMessageBytes });
  for await (const batch of watchBatches({ transport, nodeName: "n1" }, AbortSignal.timeout(10_000))) return batch;
  return undefined;
}

function serviceWithAffinity(seconds: number): Uint8Array {
  const affinity = { case: "ClientIP", value: { TimeoutSeconds: seconds } } as const;
  return toBinary(ServiceSchema, create(ServiceSchema, { Namespace: "a", Name: "web", SessionAffinity: affinity }));
}

test("a Service with an affinity timeout is accepted", async () => {
  const batch = await firstBatch([reset, put(WireSet.ServicesSet, "a/web", serviceWithAffinity(1)), sync()]);
  expect(batch?.changes).toMatchObject([{ kind: "put-service", key: "a/web" }]);
});

test("the recorded stream of a Go watcher is one batch", async () => {
  const batch = await firstBatch(readCapture("local-n1"));
  expect(batch?.isReset).toBe(true);
  expect(batch?.changes.map((change) => change.kind)).toEqual([
    "put-service",
    "put-service",
    "put-endpoint",
    "put-endpoint",
    "put-endpoint",
  ]);
});

test("a request is sent when the caller asks for a batch, and names the node and our features", async () => {
  await using watcher = await playWatcher(({ index }) => (index === 0 ? [reset, sync(7n, "run")] : [sync(8n, "run")]));
  const options = { transport: dial({ api: watcher.address }), nodeName: "n1", serviceProxyName: "p" };
  const batches = watchBatches(options, AbortSignal.timeout(10_000));
  expect(watcher.asked.length).toBe(0);
  for (let count = 1; count <= 3; count++) {
    const { value } = await batches.next();
    expect(value).toMatchObject({ isReset: count === 1, revision: count === 1 ? 7n : 8n, instance: "run" });
    // The answered request is the last one: if requests were sent early, the server would have read another one before
    // its answer arrived here.
    expect(watcher.asked.length).toBe(count);
  }
  await batches.return();
  expect(watcher.asked[0]?.request).toMatchObject({
    NodeName: "n1",
    ServiceProxyName: "p",
    Features: [Feature.Extended, Feature.NodeItem, Feature.Batches],
  });
});

test("an unknown Set is skipped, and a Reset within a batch discards the operations before it", async () => {
  const batch = await firstBatch([
    putService("a/gone"),
    reset,
    put(99 as WireSet, "x", new Uint8Array([255])),
    putService("a/web"),
    sync(),
  ]);
  expect(batch?.changes).toMatchObject([{ kind: "put-service", key: "a/web" }]);
});

test.each([
  { name: "undecodable bytes", ops: [reset, put(WireSet.ServicesSet, "a/web", new Uint8Array([255, 1, 2]))] },
  {
    name: "an affinity timeout of 0",
    ops: [reset, put(WireSet.ServicesSet, "a/web", serviceWithAffinity(0))],
  },
  {
    name: "a negative affinity timeout",
    ops: [reset, put(WireSet.ServicesSet, "a/web", serviceWithAffinity(-1))],
  },
  { name: "an invalid path", ops: [reset, put(WireSet.EndpointsSet, "a/b/c/d", new Uint8Array())] },
])("BAD_STREAM ends the stream after $name", async ({ ops }) => {
  await expect(firstBatch([...ops, sync()])).rejects.toThrow("[BAD_STREAM]");
});

test("a message beyond the limit ends the stream with an error that names the option", async () => {
  const large = put(WireSet.EndpointsSet, "a/b/c", new Uint8Array(100_000));
  await expect(firstBatch([reset, large, sync()], 50_000)).rejects.toThrow("raise --max-msg-size");
});

test.each([
  { name: "ends without a sync marker", answer: () => "end" as const },
  {
    name: "breaks",
    answer: () => {
      throw new Error("broken");
    },
  },
])("a stream that $name is lost", async ({ answer }) => {
  await using watcher = await playWatcher(answer);
  const batches = watchBatches(
    { transport: dial({ api: watcher.address }), nodeName: "n1" },
    AbortSignal.timeout(10_000),
  );
  await expect(batches.next()).rejects.toThrow("[STREAM_LOST]");
});

test("a connection that closes during the handshake gives an error that asks about TLS", async () => {
  const server = createServer((socket) => socket.once("data", () => socket.destroy()));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const batches = watchBatches(
    { transport: dial({ api: `127.0.0.1:${port}` }), nodeName: "n1" },
    AbortSignal.timeout(10_000),
  );
  await expect(batches.next()).rejects.toThrow("does only one side use TLS?");
  await new Promise((resolve) => server.close(resolve));
});

test("the watcher's side of the call ends when the caller returns or aborts", async () => {
  for (const how of ["return", "abort"] as const) {
    const stop = new AbortController();
    await using watcher = await playWatcher((asked) => (asked.index === 0 ? [reset, sync()] : silence(asked)));
    const batches = watchBatches({ transport: dial({ api: watcher.address }), nodeName: "n1" }, stop.signal);
    await batches.next();
    const next = how === "abort" ? batches.next() : undefined;
    if (how === "return") await batches.return();
    else stop.abort();
    expect((await next)?.done ?? true).toBe(true);
    const signal = watcher.asked[0]?.signal;
    await new Promise<void>((resolve) => {
      if (signal?.aborted) resolve();
      else signal?.addEventListener("abort", () => resolve());
    });
  }
});

test("a batch of 12 000 operations arrives whole", async () => {
  const ops = [reset];
  for (let i = 0; i < 2_000; i++) {
    ops.push(putService(`a/s${i}`));
    for (let j = 0; j < 5; j++) ops.push(putEndpoint(`a/s${i}/e${j}`));
  }
  expect((await firstBatch([...ops, sync()]))?.changes.length).toBe(2_000 * 6);
});
