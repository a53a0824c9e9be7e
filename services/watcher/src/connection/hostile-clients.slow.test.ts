import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import { service } from "@kpng/source/testing/build.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  connectionStart,
  encodeFrame,
  encodeRequestHeaders,
  flagEndHeaders,
  frameType,
} from "../testing/http2-frames.ts";
import { dialHttp2, encodeRequest, RawWatch } from "../testing/raw-watch.ts";
import { WatchedServer } from "../testing/watched-server.ts";

let watched: WatchedServer;
let good: RawWatch;

/** A well-behaved client is connected all the time, and must still be served after the attack. */
beforeEach(async () => {
  watched = new WatchedServer();
  await watched.serve({ drainMs: 0, pingMs: 50, pongMs: 500 });
  good = await watched.openWatch();
});

afterEach(async () => {
  const { byteCount } = good;
  watched.store.apply([{ kind: "put-service", service: service({ name: "other" }) }]);
  await good.received(byteCount + 1);
  expect(good.stream.closed).toBe(false);
  good.session.destroy();
  await expect.poll(() => watched.server.subscribers.open.size).toBe(0);
  await watched.stop();
});

const headers = encodeRequestHeaders("/localv1.Sets/Watch", "kpng", "http");
const rstStream = (id: number): Buffer => encodeFrame(frameType.rstStream, 0, id, Buffer.from([0, 0, 0, 8]));
const open = (id: number): Buffer => encodeFrame(frameType.headers, flagEndHeaders, id, headers);
const ask = (id: number): Buffer => encodeFrame(frameType.data, 0, id, encodeRequest({ NodeName: "n1" }));

async function dialHostile(): Promise<Socket> {
  const socket = connect(watched.socketAddress);
  socket.on("error", () => undefined).resume();
  await once(socket, "connect");
  socket.write(connectionStart);
  return socket;
}

/** Writes pieces until the server ends the connection. Returns how many were written. */
async function flood(socket: Socket, count: number, piece: (index: number) => Buffer): Promise<number> {
  let sent = 0;
  for (; sent < count && !isEnded(socket); sent++) {
    if (!socket.write(piece(sent))) await turn();
    if (sent % 100 === 0) await turn();
  }
  return sent;
}

/** True once the server has ended the connection. */
const isEnded = (socket: Socket): boolean => socket.destroyed || socket.readableEnded;

test("a client that endlessly opens and cancels calls is disconnected (CVE-2023-44487)", async () => {
  const hostile = await dialHostile();
  const sent = await flood(hostile, 50_000, (index) => {
    const id = 2 * index + 1;
    return Buffer.concat([open(id), ask(id), rstStream(id)]);
  });
  expect(sent).toBeLessThan(50_000);
  await expect.poll(() => isEnded(hostile)).toBe(true);
  await expect.poll(async () => (await watched.refused("protocol")) + (await watched.refused("call-rate"))).toBe(1);
});

test("300 calls of a client that has 75 at a time are all answered", { timeout: 60_000 }, async () => {
  const session = dialHttp2(watched.address);
  const check = (): Promise<unknown> => {
    const headers = { ":method": "POST", "content-type": "application/grpc", te: "trailers" };
    const stream = session.request({ ...headers, ":path": "/grpc.health.v1.Health/Check" });
    stream.on("error", () => undefined).resume();
    stream.end(Buffer.alloc(5));
    const status = once(stream, "trailers").then(([trailers]) => trailers["grpc-status"]);
    return Promise.race([status, once(stream, "close").then(() => "closed")]);
  };
  for (let batch = 0; batch < 4; batch += 1) {
    const statuses = await Promise.all(Array.from({ length: 75 }, check));
    expect(new Set(statuses)).toEqual(new Set(["0"]));
  }
  session.destroy();
});

test("a connection sends no more bytes of requests with many streams than with one", { timeout: 60_000 }, async () => {
  const session = dialHttp2(watched.address).setMaxListeners(0);
  const startMs = performance.now();
  const watches = Array.from(
    { length: 90 },
    () => new RawWatch(session, { NodeName: "n".repeat(16_000), Ack: { Earlier: many(33, {}) } }),
  );
  await Promise.all(watches.map(({ ended }) => ended));
  // 65 of these requests may be sent at once, and 16 per second after that: the others take 1.6 s on any machine.
  expect(performance.now() - startMs).toBeGreaterThan(1_500);
  expect(new Set(watches.map(({ status }) => status))).toEqual(new Set(["3"]));
  session.destroy();
});

test("a client that endlessly sends headers is disconnected (CVE-2024-28182)", async () => {
  const hostile = await dialHostile();
  const field = Buffer.concat([Buffer.of(0, 1), Buffer.from("x"), Buffer.of(120), Buffer.alloc(120, "y")]);
  const block = Buffer.concat(Array.from({ length: 100 }, () => field));
  hostile.write(encodeFrame(frameType.headers, 0, 1, headers));
  const sent = await flood(hostile, 10_000, () => encodeFrame(frameType.continuation, 0, 1, block));
  expect(sent).toBeLessThan(10_000);
  await expect.poll(() => isEnded(hostile)).toBe(true);
  await expect.poll(() => watched.refused("protocol")).toBe(1);
});

test.each([
  { name: "pings", frame: encodeFrame(frameType.ping, 0, 0, Buffer.alloc(8)) },
  { name: "settings", frame: encodeFrame(frameType.settings, 0, 0, Buffer.from([0, 4, 0, 0, 255, 255])) },
])("a client that endlessly sends $name and reads no reply is disconnected", async ({ frame }) => {
  const hostile = await dialHostile();
  hostile.pause();
  const many = Buffer.concat(Array.from({ length: 1_000 }, () => frame));
  let isOver = false;
  hostile.once("close", () => {
    isOver = true;
  });
  for (let sent = 0; sent < 20_000 && !isOver; sent++) {
    if (!hostile.write(many)) {
      await Promise.race([once(hostile, "drain"), once(hostile, "close")]).catch(() => undefined);
    }
  }
  expect(isOver).toBe(true);
  await expect.poll(() => watched.refused("protocol")).toBe(1);
});

const many = <T>(length: number, one: T): T[] => Array.from({ length }, () => one);
test.each([
  { what: "cannot be decoded", bytes: Buffer.of(0, 0, 0, 0, 3, 0xff, 0xff, 0xff), status: "3" },
  { what: "is incomplete", bytes: Buffer.of(0, 0, 0, 0, 100, 0x0a), status: "3" },
  {
    what: "names a node in bytes that are not UTF-8",
    bytes: Buffer.of(0, 0, 0, 0, 4, 0x0a, 2, 0xc3, 0x28),
    status: "3",
  },
  { what: "has more than 16 KiB", bytes: encodeRequest({ Ack: { Earlier: many(9_000, {}) } }), status: "8" },
  { what: "states a length of 1 GiB", bytes: Buffer.of(0, 0x40, 0, 0, 0), status: "8" },
  {
    what: "acknowledges 34 revisions",
    bytes: encodeRequest({ Ack: { Earlier: many(33, {}) } }),
    status: "3",
    counted: 1,
  },
])("a client whose request $what gets status $status", async ({ bytes, status, counted = 0 }) => {
  const hostile = new RawWatch(dialHttp2(watched.address));
  hostile.stream.end(bytes);
  await hostile.ended;
  expect(hostile.status).toBe(status);
  expect(await watched.refused("request")).toBe(counted);
  hostile.session.destroy();
});

test("the largest requests of our nodes are taken", async () => {
  const Timings = { WaitMicros: 1n, RenderMicros: 1n, CommitMicros: 1n };
  good.ask({ Ack: { Failed: 1n, Error: "no", Timings, Earlier: many(32, { Applied: 1n, AgeMicros: 1n }) } });
  const isTaken = () => [...watched.server.subscribers.open][0]?.failure !== undefined;
  await expect.poll(isTaken, { timeout: 30_000 }).toBe(true);
  expect(await watched.refused("request")).toBe(0);
});
