import { zstdCompressSync } from "node:zlib";
import { create, toBinary, toJson } from "@bufbuild/protobuf";
import {
  Encoding,
  EndpointSchema,
  type OpItem,
  OpItemSchema,
  OpItemsSchema,
  Set as WireSet,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { expect, test } from "vitest";
import { defaultMessageBytes, defaultViewBytes, estimateOpBytes } from "../state/item-limits.ts";
import { ViewState } from "../state/view-state.ts";
import { inTurn, startFakeWatcher } from "../testing/fake-watcher.ts";
import { deleteEndpoint, pack, put, putEndpoint, putService, reset, sync } from "../testing/ops.ts";
import { unpackOps, watchView } from "./follow-view.ts";

const mebibyte = 1024 * 1024;

/** Follows one stream until it ends, and returns the number of its batches and why it ended. */
async function followStream(ops: Iterable<OpItem>, maxViewBytes: number) {
  await using watcher = await startFakeWatcher(inTurn(ops));
  const transport = dial({ api: watcher.address });
  const options = { transport, nodeName: "n1", maxViewBytes };
  const updates = watchView(new ViewState("n1"), options, AbortSignal.timeout(30_000));
  let batches = 0;
  try {
    for await (const _update of updates) batches++;
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

test("a view of 250 000 endpoints is within the default limit of a process with 512 MiB", () => {
  const limit = defaultViewBytes(512 * mebibyte);
  let bytes = 0;
  for (let index = 0; index < 250_000; index++) {
    const op = index % 10 === 0 ? putService(`shop/service-${index}`) : realisticEndpoint(index);
    bytes += estimateOpBytes(op);
  }
  expect(bytes).toBeLessThan(limit);
  expect(bytes).toBeGreaterThan(limit / 2);
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

async function* each(ops: readonly OpItem[]): AsyncIterable<OpItem> {
  yield* ops;
}

async function unpackAll(ops: readonly OpItem[], maxMessageBytes?: number): Promise<OpItem[]> {
  return Array.fromAsync(unpackOps(each(ops), maxMessageBytes));
}

/** Receives the first batch; returns the Services with their endpoints, and the digests. */
async function firstView(ops: readonly OpItem[]): Promise<unknown> {
  await using watcher = await startFakeWatcher(inTurn(ops));
  const state = new ViewState("n1");
  await watchView(
    state,
    { transport: dial({ api: watcher.address }), nodeName: "n1" },
    AbortSignal.timeout(10_000),
  ).next();
  const services = [...state.view.services].map(([key, { service, endpoints }]) => ({ key, service, endpoints }));
  return { services, buckets: state.buckets };
}

function toText(op: OpItem): string {
  return JSON.stringify(toJson(OpItemSchema, op));
}

const some = [putService("a/web"), putEndpoint("a/web/x"), putEndpoint("a/web/y"), deleteEndpoint("a/web/x")];

test.each([Encoding.Zstd, Encoding.Identity])(
  "a packed message is replaced by its operations, in order (%s)",
  async (encoding) => {
    const bytes = toBinary(OpItemsSchema, create(OpItemsSchema, { Items: some }));
    const fields = encoding === Encoding.Zstd ? {} : { Items: bytes, Encoding: encoding };
    const ops = [reset, pack(some, fields), pack([]), sync()];
    expect((await unpackAll(ops)).map(toText)).toEqual([reset, ...some, sync()].map(toText));
  },
);

test("packed and plain operations give the same view and the same digests", async () => {
  const plain = await firstView([reset, ...some, sync(1n, "run")]);
  const packed = await firstView([reset, pack(some.slice(0, 3)), ...some.slice(3), sync(1n, "run")]);
  expect(packed).toEqual(plain);
  expect(plain).toMatchObject({ services: [{ key: "a/web", endpoints: [{ key: "y" }] }] });
});

const large = zstdCompressSync(new Uint8Array(10_000_000));

/** RFC 8878: magic number, no content size, a window of 2 to the power 27, one last raw block of 2 bytes. */
const wideWindow = Buffer.from("28b52ffd 00 88 110000 0a00".replaceAll(" ", ""), "hex");
const narrowWindow = Buffer.from("28b52ffd 00 80 110000 0a00".replaceAll(" ", ""), "hex");

test.each([
  { name: "shorter than its declared size", op: pack(some, { Size: 10_000 }), says: "that declares 10000" },
  { name: "longer than its declared size", op: pack(some, { Size: 3 }), says: "cannot be decompressed to 3 bytes" },
  {
    name: "a thousand times as long as its declared size",
    op: pack([], { Items: large, Size: 10_000 }),
    says: "decompressed to 10000",
  },
  {
    name: "that declares more than 64 MiB",
    op: pack([], { Size: 64 * 1024 * 1024 + 1 }),
    says: "more than the limit of 67108864",
  },
  {
    name: "that is not Zstandard",
    op: pack([], { Items: Buffer.from("nonsense"), Size: 8 }),
    says: "cannot be decompressed",
  },
  {
    name: "that needs a window of 128 MiB",
    op: pack([], { Items: wideWindow, Size: 2 }),
    says: "cannot be decompressed",
  },
  { name: "in an unknown encoding", op: pack(some, { Encoding: 7 as Encoding }), says: "unknown encoding 7" },
  { name: "that contains a sync marker", op: pack([sync()]), says: "contains Sync" },
  { name: "that contains a packed message", op: pack([pack(some)]), says: "contains Batch" },
  {
    name: "that does not contain operations",
    op: pack([], { Items: Buffer.from([0x0a, 0x09, 1]), Size: 3, Encoding: Encoding.Identity }),
    says: "cannot be decoded",
  },
])("a packed message $name ends the stream with BAD_STREAM", async ({ op, says }) => {
  await expect(unpackAll([reset, op, sync()])).rejects.toThrow(new RegExp(`^\\[BAD_STREAM\\].*${says}`));
  await expect(firstView([reset, op, sync()])).rejects.toThrow("[BAD_STREAM]");
});

test("a window of 64 MiB is accepted", async () => {
  expect(await unpackAll([pack([], { Items: narrowWindow, Size: 2 })])).toHaveLength(1);
});

test("the message size limit also applies after decompression", async () => {
  const op = pack(Array.from({ length: 100 }, (_, index) => putEndpoint(`a/web/${index}`)));
  await expect(unpackAll([op], 1_000)).rejects.toThrow("raise --max-msg-size");
  expect(await unpackAll([op], 10_000)).toHaveLength(100);
});
