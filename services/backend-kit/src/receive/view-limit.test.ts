import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  EndpointSchema,
  type OpItem,
  OpItemSchema,
  ServiceSchema,
  Set as WireSet,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { decodeLocalOp } from "@kpng/model/wire/decode-local.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { expect, test } from "vitest";
import { deleteEndpoint, pack, put, putEndpoint, putService, reset, sync } from "../testing/ops.ts";
import { playWatcher, silence } from "../testing/played-watcher.ts";
import { HeldItems } from "./held-items.ts";
import { estimateOpBytes } from "./op-size.ts";
import { defaultMessageBytes, defaultViewBytes } from "./view-limit.ts";
import { watchBatches } from "./watch-batches.ts";

const mebibyte = 1024 * 1024;

/** Follows one stream until it ends, and returns the number of its batches and why it ended. */
async function followStream(ops: Iterable<OpItem>, maxViewBytes: number) {
  await using watcher = await playWatcher((asked) => (asked.index === 0 ? ops : silence(asked)));
  const transport = dial({ api: watcher.address });
  const options = { transport, nodeName: "n1", held: new HeldItems(), maxViewBytes };
  let batches = 0;
  try {
    for await (const _batch of watchBatches(options, AbortSignal.timeout(30_000))) batches++;
  } catch (error) {
    return { batches, reason: String(error) };
  }
  return { batches, reason: "none" };
}

function* endless(make: (index: number) => OpItem): Generator<OpItem> {
  yield reset;
  for (let index = 0; ; index++) yield make(index);
}

function packOf(count: number, make: (index: number) => OpItem): (batch: number) => OpItem {
  return (batch) => pack(Array.from({ length: count }, (_, index) => make(batch * count + index)));
}

test.each([
  { name: "Services", ops: () => endless((index) => putService(`a/s${index}`)) },
  { name: "packed Services", ops: () => endless(packOf(1_000, (index) => putService(`a/s${index}`))) },
  { name: "packed deletes", ops: () => endless(packOf(1_000, (index) => deleteEndpoint(`a/b/${index}`))) },
  {
    name: "packed items of an unknown kind",
    ops: () => endless(packOf(1_000, (index) => put(99 as WireSet, `a/${index}`, new Uint8Array()))),
  },
])("$name without end and without a sync marker end the stream at the limit", async ({ ops }) => {
  const { batches, reason } = await followStream(ops(), 4 * mebibyte);
  expect([batches, reason]).toEqual([0, expect.stringContaining("[VIEW_TOO_LARGE] the batch")]);
});

test("a view that grows with each batch ends the stream at the limit", async () => {
  const grow = function* (): Generator<OpItem> {
    yield reset;
    for (let batch = 0; ; batch++) {
      yield packOf(1_000, (index) => putService(`a/s${index}`))(batch);
      yield sync(BigInt(batch + 1), "i");
    }
  };
  const { batches, reason } = await followStream(grow(), 4 * mebibyte);
  expect(batches).toBeGreaterThan(1);
  expect(reason).toContain("[VIEW_TOO_LARGE] the view");
});

test("a view that is put again and again, or deleted, does not count twice", async () => {
  const repeat = function* (): Generator<OpItem> {
    yield reset;
    for (let batch = 1; batch <= 20; batch++) {
      yield putService("a/web");
      yield packOf(1_000, (index) => (batch % 2 === 0 ? deleteEndpoint : putEndpoint)(`a/web/${index}`))(0);
      yield sync(BigInt(batch), "i");
    }
    yield putService("a/web");
    yield packOf(10_000, (index) => deleteEndpoint(`a/web/${index}`))(0);
  };
  const { batches, reason } = await followStream(repeat(), 2 * mebibyte);
  expect([batches, reason]).toEqual([20, expect.stringContaining("the batch")]);
});

test.each([
  { name: "2 MiB of annotations", fields: { Annotations: { a: "x".repeat(2 * mebibyte) } } },
  { name: "200 000 ports", fields: { Ports: Array.from({ length: 200_000 }, () => ({})) } },
])("a Service with $name ends the stream before it is decoded", async ({ fields }) => {
  const bytes = toBinary(ServiceSchema, create(ServiceSchema, { Namespace: "a", Name: "web", ...fields }));
  const { reason } = await followStream([reset, put(WireSet.ServicesSet, "a/web", bytes), sync()], 1024 * mebibyte);
  expect(reason).toContain("[BAD_STREAM] the watcher sent an item of");
});

test("a view of 250 000 endpoints is within the default limit of a process with 512 MiB", () => {
  const limit = defaultViewBytes(512 * mebibyte);
  let bytes = 0;
  for (let index = 0; index < 250_000; index++) {
    const op = index % 10 === 0 ? putService(`shop/service-${index}`) : realisticEndpoint(index);
    bytes += estimateOpBytes(op, decodeLocalOp(op));
  }
  expect(bytes).toBeLessThan(limit);
  expect(bytes).toBeGreaterThan(limit / 2);
});

test("an operation with long texts takes no more memory than is estimated", () => {
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  const held = new HeldItems();
  const kept: unknown[] = [];
  let estimate = 0;
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let index = 0; index < 200; index++) {
    const sent = putService(`a/${"x".repeat(60_000)}${index}`);
    const op = fromBinary(OpItemSchema, toBinary(OpItemSchema, sent));
    const decoded = decodeLocalOp(op);
    estimate += estimateOpBytes(op, decoded);
    held.stage(op, 0);
    kept.push(decoded);
  }
  collect();
  const used = process.memoryUsage().heapUsed - before;
  expect(kept).toHaveLength(200);
  expect(used).toBeGreaterThan(mebibyte);
  expect(used).toBeLessThan(estimate);
});

test("the default limit of a message follows the memory, from 2 MiB to KPNG's 64 MiB", () => {
  const limits = [64, 512, 1024 * 1024].map((memory) => defaultMessageBytes(memory * mebibyte) / mebibyte);
  expect(limits).toEqual([2, 4, 64]);
});

function realisticEndpoint(index: number): OpItem {
  const podName = `service-${index >> 7}-6f7c9b8d4-${index.toString(36)}`;
  const endpoint = create(EndpointSchema, {
    IPs: { V4: [`10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`] },
    PodName: podName,
    NodeName: `node-${index % 1_000}`,
    Scopes: { Internal: true, External: true },
    PortOverrides: ["http", "metrics"].map((Name, port) => ({ Name, Port: 8080 + port })),
  });
  return put(WireSet.EndpointsSet, `shop/service-${index >> 7}/${podName}`, toBinary(EndpointSchema, endpoint));
}
