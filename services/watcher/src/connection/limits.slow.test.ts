import { once } from "node:events";
import { readFileSync } from "node:fs";
import { constants } from "node:http2";
import { connect, type Socket } from "node:net";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { makeCluster } from "@kpng/source/simulate/synthetic.ts";
import { node, service } from "@kpng/source/testing/build.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { dialHttp2, RawWatch } from "../testing/raw-watch.ts";
import { WatchedServer } from "../testing/watched-server.ts";
import { resolveLimits } from "./limits.ts";

let watched: WatchedServer;
let sockets: Socket[];

beforeEach(() => {
  watched = new WatchedServer();
  sockets = [];
  watched.store.replace(makeCluster({ services: 300, endpoints: 5, nodes: 1 }));
});

afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await watched.stop();
});

async function open(): Promise<Socket> {
  const socket = connect(watched.socketAddress);
  socket.on("error", () => undefined);
  sockets.push(socket);
  await once(socket, "connect");
  return socket;
}

test("queries beyond the limits fail with RESOURCE_EXHAUSTED, and ended ones make room", async () => {
  await watched.serve({ maxQueries: 40, drainMs: 0 });
  const client = createClient(InspectService, dial({ api: watched.address }));
  const stop = new AbortController();
  const watch = (one: typeof client) => one.watchServices({}, { signal: stop.signal })[Symbol.asyncIterator]();
  const watches = Array.from({ length: 40 }, () => watch(client));
  await Promise.all(watches.map((one) => one.next()));
  const transport = createConnectTransport({ baseUrl: `http://${watched.address}`, httpVersion: "2" });
  for (const one of [client, createClient(InspectService, transport)]) {
    await expect(one.getStatus({})).rejects.toThrow("[resource_exhausted] too many calls");
  }
  expect(await watched.refused("queries")).toBe(2);
  stop.abort();
  await Promise.allSettled(watches.map((one) => one.next()));
  await expect.poll(() => client.getStatus({}).catch(() => undefined)).toMatchObject({ isSynced: true });
});

test("connections beyond the limit in all are closed", async () => {
  await watched.serve({ maxConnections: 5, drainMs: 0 });
  await Promise.all(Array.from({ length: 15 }, open));
  for (const socket of sockets) socket.resume();
  await expect.poll(() => watched.refused("connections")).toBe(10);
});

test("calls beyond the limit in all are refused, and ended ones make room", { timeout: 120_000 }, async () => {
  await watched.serve({ maxCalls: 3, drainMs: 0 });
  const watches = Array.from({ length: 3 }, () => new RawWatch(dialHttp2(watched.address)));
  await Promise.all(watches.map((watch) => watch.received(40)));
  const refusedWatch = new RawWatch(dialHttp2(watched.address));
  await refusedWatch.ended;
  expect(refusedWatch.stream.rstCode).toBe(constants.NGHTTP2_REFUSED_STREAM);
  expect(refusedWatch.session.closed).toBe(false);
  expect(await watched.refused("calls")).toBe(1);
  watches[0]?.stream.close();
  const isServed = async (): Promise<boolean> => {
    const session = dialHttp2(watched.address);
    const watch = new RawWatch(session);
    await watch.received(40);
    session.destroy();
    return watch.byteCount > 0;
  };
  await expect.poll(isServed, { timeout: 60_000 }).toBe(true);
  for (const { session } of [...watches, refusedWatch]) session.destroy();
});

test("a connection ends when the headers of a call are larger than 16 KiB", { timeout: 120_000 }, async () => {
  await watched.serve({ drainMs: 0 });
  const session = dialHttp2(watched.address);
  const watch = new RawWatch(session, undefined, { "x-large": "x".repeat(17_000) });
  await watch.ended;
  expect(session.destroyed).toBe(true);
  expect(await watched.refused("headers")).toBe(1);
});

test("a call whose client does not read ends, and calls of other clients do not", { timeout: 120_000 }, async () => {
  const rows = Array.from({ length: 20_000 }, (_, index) => service({ name: `large-${index}` }));
  watched.store.replace({ services: rows, slices: [], nodes: [] });
  await watched.serve({ writeTimeoutMs: 200, drainMs: 0 });
  const good = createClient(InspectService, dial({ api: watched.address }));
  const watch = good.watchNodes({})[Symbol.asyncIterator]();
  await watch.next();
  const stopped = createClient(InspectService, dial({ api: watched.address }));
  const unread = stopped.watchServices({})[Symbol.asyncIterator]();
  await unread.next();
  await expect.poll(() => watched.refused("unread"), { timeout: 60_000 }).toBe(1);
  watched.store.apply([{ kind: "put-node", node: node("n9") }]);
  const { value } = await watch.next();
  expect(value?.nodes.map(({ name }: { name: string }) => name)).toContain("n9");
});

test("a watch sends at most 500 rows in a message, makes them on demand, and marks the end of the initial state", async () => {
  await watched.serve({ drainMs: 0 });
  const sizes: number[] = [];
  const client = createClient(InspectService, dial({ api: watched.address }));
  let isStarted = false;
  for await (const { endpoints, deleted, isComplete } of client.watchEndpoints({})) {
    if (isStarted) {
      expect([endpoints.length, deleted.length, isComplete]).toEqual([0, 5, true]);
      break;
    }
    sizes.push(endpoints.length);
    isStarted = isComplete;
    if (isComplete) watched.store.apply([{ kind: "delete-slice", key: "scale/service-7/service-7-0" }]);
  }
  expect(sizes.reduce((all, one) => all + one)).toBe(1_500);
  expect(Math.max(...sizes)).toBe(500);
});

test("the default limits are those of the formula in the guide, and none exceeds the open files", () => {
  const guide = readFileSync("docs/guides/sizing.md", "utf8").split("\n");
  const cell = (option: string) =>
    guide
      .find((line) => line.startsWith(`| ${option} `))
      ?.split("|")
      .at(-2)
      ?.trim();
  const resources = { memoryBytes: 512 * 1_024 * 1_024, openFiles: 1_048_576 };
  const [plain, tls] = [resolveLimits({}, resources, false), resolveLimits({}, resources, true)];
  expect(cell("`--max-connections`")).toBe(`${plain.maxConnections}; with TLS ${tls.maxConnections}`);
  expect(cell("queries")).toBe(String(plain.maxQueries));
  const connectionsOf = (openFiles: number, maxConnections?: number) =>
    resolveLimits({ maxConnections }, { ...resources, openFiles }, false).maxConnections;
  expect([connectionsOf(1_024), connectionsOf(100), connectionsOf(1_024, 5_000)]).toEqual([960, 50, 960]);
});
