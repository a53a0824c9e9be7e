import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  connectionStart,
  encodeFrame,
  encodeRequestHeaders,
  flagEndHeaders,
  frameType,
} from "../../../../test/scale/http2-frames.ts";
import { service } from "../testing/build.ts";
import { WatchedServer } from "../testing/watched-server.ts";

let watched: WatchedServer;
beforeEach(() => {
  watched = new WatchedServer();
});
afterEach(() => watched.stop());

describe("the server ends", () => {
  test("a connection that answers no ping and sends nothing", async () => {
    await watched.serve({ keepalive: { intervalMs: 20, timeoutMs: 40 } });
    const socket = connectTcp(watched.socketAddress);
    socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "latin1");
    await once(socket.resume(), "close");
    expect(await watched.metric("kpng_connections_ended_total", { reason: "silent" })).toBe(1);
  });

  test("no connection that sends other data without answering a ping, because the reply may be queued", async () => {
    await watched.serve({ keepalive: { intervalMs: 20, timeoutMs: 100 } });
    const socket = connectTcp(watched.socketAddress);
    socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "latin1");
    let isClosed = false;
    socket.resume().once("close", () => {
      isClosed = true;
    });
    // PRIORITY frames, which are deprecated and ignored (RFC 9113 §5.3.2).
    for (let count = 0; count < 50; count++) {
      socket.write(Buffer.from([0, 0, 5, 2, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0]));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(isClosed).toBe(false);
    socket.destroy();
  });

  const headers = encodeRequestHeaders("/localv1.Sets/Watch", "kpng", "http");
  const silentCalls = Buffer.concat([
    connectionStart,
    ...[1, 3, 5].map((id) => encodeFrame(frameType.headers, flagEndHeaders, id, headers)),
  ]).toString("latin1");
  test.each([
    { name: "half an HTTP/2 preface", bytes: "PRI * HTT" },
    { name: "HTTP/2 without a call", bytes: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" },
    { name: "HTTP/2 calls without a request", bytes: silentCalls },
  ])("$name", async ({ bytes }) => {
    await watched.serve({ idleMs: 60 });
    const socket = connectTcp(watched.socketAddress);
    socket.on("error", () => undefined);
    socket.write(bytes, "latin1");
    await once(socket.resume(), "close");
    await expect.poll(() => watched.metric("kpng_connections")).toBe(0);
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
