import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { Health } from "@kpng/model/gen/grpc/health/v1/health_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { pushbackOf } from "@kpng/process/connection/reconnect.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { makeCluster } from "@kpng/source/simulate/synthetic.ts";
import { service } from "@kpng/source/testing/build.ts";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  connectionStart,
  encodeFrame,
  encodeRequestHeaders,
  flagEndHeaders,
  frameType,
} from "../testing/http2-frames.ts";
import { dialHttp2, encodeRequest, type RawWatch } from "../testing/raw-watch.ts";
import { openStream, WatchedServer } from "../testing/watched-server.ts";

let watched: WatchedServer;
beforeEach(() => {
  watched = new WatchedServer();
});
afterEach(() => watched.stop());

describe("a connection at its maximum age", () => {
  test("receives GOAWAY, then its stream ends, and then it closes", async () => {
    await watched.serve({ maxAgeMs: 50, ageIntervalMs: 1 });
    const watch = await watched.openWatch();
    await watch.ended;
    expect({ status: watch.status, pushback: watch.pushback }).toEqual({ status: "14", pushback: "0" });
    await expect.poll(() => watch.events.at(-1)).toBe("close of session");
    expect(watch.events.slice(0, 3)).toEqual(["goaway", "trailers", "close of stream"]);
    expect(await watched.metric("kpng_connections_ended_total", { reason: "age" })).toBe(1);
  });

  test("receives the batch in progress to its end", async () => {
    // More than the flow-control windows of HTTP/2 allow at once.
    watched.store.replace(makeCluster({ services: 1_000, endpoints: 5, nodes: 1 }));
    await watched.serve({ maxAgeMs: 1_000, ageIntervalMs: 1 });
    const watch = watched.dialWatch();
    // More than Reset, which is sent before the view is computed.
    await watch.received(1_000);
    watch.stream.pause();
    await once(watch.session, "goaway");
    watch.stream.resume();
    await watch.ended;
    expect(watch.status).toBe("14");
    expect(watch.byteCount).toBeGreaterThan(500_000);
  });

  test("closes alone: the next one waits for the pace", async () => {
    await watched.serve({ maxAgeMs: 40, ageIntervalMs: 3_600_000 });
    const watches: RawWatch[] = [];
    for (let count = 0; count < 5; count++) watches.push(await watched.openWatch());
    const gone = () => watches.filter(({ events }) => events.includes("goaway")).length;
    await expect.poll(gone).toBe(1);
    // All have exceeded their maximum age by now.
    for (let passed = 0; passed < 10; passed++) await new Promise((resolve) => setTimeout(resolve, 40));
    expect(gone()).toBe(1);
  });

  test.each([
    { name: "Connect", make: (baseUrl: string) => createConnectTransport({ baseUrl, httpVersion: "2" }) },
    { name: "gRPC", make: (baseUrl: string) => createGrpcTransport({ baseUrl }) },
  ])("ends calls that wait, over $name, and the next call is served", async ({ make }) => {
    await watched.serve({ maxAgeMs: 50, ageIntervalMs: 1 });
    const transport = make(`http://${watched.address}`);
    const endOf = async (messages: AsyncIterable<unknown>): Promise<ConnectError> => {
      try {
        for await (const _ of messages);
      } catch (error) {
        return ConnectError.from(error);
      }
      throw new Error("it ended without an error");
    };
    for (let calls = 0; calls < 2; calls += 1) {
      const error = await endOf(createClient(Health, transport).watch({ service: "" }));
      expect({ code: error.code, pushback: pushbackOf(error) }).toEqual({ code: Code.Unavailable, pushback: 0 });
    }
  });

  test("stays open on a unix socket", async () => {
    const api = `unix://${join(temporaryFolder(), "api.sock")}`;
    await watched.serve({ listen: [api], maxAgeMs: 30, ageIntervalMs: 1 });
    const { ended } = await openStream(dial({ api }), "n1");
    const passed = new Promise((resolve) => setTimeout(resolve, 300, "open"));
    expect(await Promise.race([ended.catch(() => "ended"), passed])).toBe("open");
  });
});

test("requests that are never read do not keep a connection open", async () => {
  await watched.serve({ maxAgeMs: 50, ageIntervalMs: 1 });
  const watch = await watched.openWatch();
  watch.stream.write(encodeRequest({ NodeName: "n1" }).subarray(0, 3));
  await watch.ended;
  expect(watch.status).toBe("14");
});

describe("a watcher that stops", () => {
  test("is not ready, accepts no connections, serves the open ones, and closes them one after the other", async () => {
    await watched.serve({ drainMs: 10_000 });
    watched.server.health.setReady("source");
    const watches: RawWatch[] = [];
    const order: number[] = [];
    for (let count = 0; count < 40; count++) {
      const watch = await watched.openWatch();
      watch.session.once("goaway", () => order.push(count));
      watches.push(watch);
    }
    const stopped = watched.server.stop();
    const [first, last] = [watches[0], watches.at(-1)];
    // Not for its end: a call is closed a second after its trailers, and all are asked to leave within two.
    await expect.poll(() => first?.events).toEqual(["goaway", "trailers"]);
    expect({ status: first?.status, pushback: first?.pushback }).toEqual({ status: "14", pushback: "0" });
    expect(watched.server.health.isReady).toBe(false);
    const refused = dialHttp2(watched.address);
    await new Promise((resolve) => refused.once("close", resolve));
    // The remaining connections still receive changes.
    const { byteCount = 0 } = last ?? {};
    watched.store.apply([{ kind: "put-service", service: service({ name: "other" }) }]);
    await last?.received(byteCount + 1);
    expect(last?.events).toEqual([]);
    await stopped;
    expect(order).toEqual(watches.map((_, index) => index));
    expect(await watched.metric("kpng_connections_ended_total", { reason: "drain" })).toBe(40);
  });

  test("ends the connections that remain when its time is over", async () => {
    watched.store.replace(makeCluster({ services: 2_000, endpoints: 5, nodes: 1 }));
    await watched.serve({ drainMs: 200 });
    const stalled = watched.dialWatch();
    await stalled.received();
    stalled.stream.pause();
    await watched.server.stop();
    await expect.poll(() => watched.metric("kpng_subscribers", { kind: "local" })).toBe(0);
  });
});

describe("the server ends", () => {
  const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
  const headers = encodeRequestHeaders("/localv1.Sets/Watch", "kpng", "http");
  const silentCalls = Buffer.concat([
    connectionStart,
    ...[1, 3, 5].map((id) => encodeFrame(frameType.headers, flagEndHeaders, id, headers)),
  ]).toString("latin1");
  const noPong = { pingMs: 20, pongMs: 40 };
  test.each([
    { name: "a connection that answers no ping and sends nothing", options: noPong, bytes: preface, reason: "silent" },
    { name: "half an HTTP/2 preface", options: { idleMs: 60 }, bytes: "PRI * HTT", reason: undefined },
    { name: "HTTP/2 without a call", options: { idleMs: 60 }, bytes: preface, reason: "idle" },
    { name: "HTTP/2 calls without a request", options: { idleMs: 60 }, bytes: silentCalls, reason: "idle" },
  ])("$name", async ({ options, bytes, reason }) => {
    await watched.serve(options);
    const socket = connectTcp(watched.socketAddress);
    socket.on("error", () => undefined);
    socket.write(bytes, "latin1");
    await once(socket.resume(), "close");
    await expect.poll(() => watched.metric("kpng_connections")).toBe(0);
    if (reason !== undefined) expect(await watched.metric("kpng_connections_ended_total", { reason })).toBe(1);
  });

  test("no connection that sends other data without answering a ping, because the reply may be queued", async () => {
    await watched.serve({ pingMs: 20, pongMs: 100 });
    const socket = connectTcp(watched.socketAddress);
    socket.write(preface, "latin1");
    socket.resume();
    // PRIORITY frames, which are deprecated and ignored (RFC 9113 §5.3.2).
    for (let count = 0; count < 50; count++) {
      socket.write(Buffer.from([0, 0, 5, 2, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0]));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(socket.closed).toBe(false);
    socket.destroy();
  });

  test("no connection with a call", async () => {
    await watched.serve({ idleMs: 30 });
    const watch = await watched.openWatch();
    for (let passed = 0; passed < 10; passed++) await new Promise((resolve) => setTimeout(resolve, 30));
    const { byteCount } = watch;
    watched.store.apply([{ kind: "put-service", service: service({ name: "other" }) }]);
    await watch.received(byteCount + 1);
  });
});

test("a server whose event loop was blocked keeps a connection whose reply to a ping arrived meanwhile", async () => {
  await watched.serve({ pingMs: 20, pongMs: 400 });
  // In another process, so that it continues while the server is blocked.
  const client = spawn(process.execPath, [
    "-e",
    `const session = require("http2").connect("http://${watched.address}");
     let pings = 0;
     session.on("ping", () => console.log("ping", ++pings)).on("error", (error) => console.log(error.code));
     session.on("close", () => { console.log("closed"); process.exit(); });
     setTimeout(() => process.exit(), 5_000);`,
  ]);
  let said = "";
  client.stdout.on("data", (chunk) => (said += chunk));
  await expect.poll(() => said).toContain("ping 2");
  for (let round = 0; round < 3; round++) {
    // Due timers run before sockets are read.
    await turn();
    for (const untilMs = performance.now() + 1_000; performance.now() < untilMs; );
  }
  await once(client, "close");
  expect(said).not.toContain("closed");
});
