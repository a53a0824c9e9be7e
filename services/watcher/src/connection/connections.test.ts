import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { connect as connectTcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { connect as connectTls, type SecureContextOptions } from "node:tls";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import type { StatusObject } from "@grpc/grpc-js";
import { Health } from "@kpng/model/gen/grpc/health/v1/health_pb.ts";
import { ServerReflection } from "@kpng/model/gen/grpc/reflection/v1/reflection_pb.ts";
import { NodeViewService } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import { pushbackOf } from "@kpng/process/retry-pushback.ts";
import { makeCertificates, type TestCertificates } from "@kpng/process/testing/certificates.ts";
import { ManualClock } from "@kpng/process/testing/manual-clock.ts";
import { readServerTls } from "@kpng/process/tls-files.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { GrpcJsWatch } from "../../../../test/peer/grpc-js-client.ts";
import {
  connectionStart,
  encodeFrame,
  encodeRequestHeaders,
  flagEndHeaders,
  frameType,
} from "../../../../test/scale/http2-frames.ts";
import { Store } from "../store/store.ts";
import { node, service } from "../testing/build.ts";
import { serveStore, type TestServer } from "../testing/serve-store.ts";
import { dialHttp2, encodeRequest, WatchStream } from "../testing/watch-stream.ts";

let store: Store;
let server: TestServer;
const streams: WatchStream[] = [];

beforeEach(() => {
  store = new Store();
  store.replace({ services: [service()], slices: [], nodes: [node("n1")] });
});

afterEach(async () => {
  for (const { session } of streams.splice(0)) session.destroy();
  await server.stop();
});

async function serve(options: Parameters<typeof serveStore>[1]): Promise<void> {
  server = await serveStore(store, options);
}

/** One that has its first batch and asks for the next. */
async function openWatch(): Promise<WatchStream> {
  const watch = new WatchStream(dialHttp2(server.address));
  streams.push(watch);
  await watch.received(40);
  watch.ask();
  return watch;
}

async function metric(name: string, labels: Record<string, string> = {}): Promise<number> {
  const values = (await server.metrics.getSingleMetric(name)?.get())?.values ?? [];
  return values.find((value) => Object.entries(labels).every(([key, text]) => value.labels[key] === text))?.value ?? 0;
}

/** Keeps the event loop from turning, and lets timers that became due run before sockets are read. */
async function holdUp(ms: number): Promise<void> {
  await turn();
  const untilMs = performance.now() + ms;
  while (performance.now() < untilMs);
}

/** Runs in a process of its own, so that it goes on while the server is held up. */
function startClient(code: string): { readonly said: () => string; readonly ended: Promise<unknown> } {
  const [host, port] = server.address.split(":");
  const child = spawn(process.execPath, ["-e", `const [host, port] = ["${host}", ${port}]; ${code}`]);
  let text = "";
  child.stdout.on("data", (chunk) => {
    text += chunk;
  });
  child.stderr.on("data", (chunk) => {
    text += chunk;
  });
  return { said: () => text, ended: once(child, "close") };
}

describe("a server that is held up ends nobody who is there", () => {
  test("one whose first bytes came meanwhile is served", async () => {
    await serve({ firstBytesMs: 500 });
    const client = startClient(`
      const socket = require("net").connect(port, host, () => { console.log("connected"); process.stdin.once("data", () =>
        socket.end("POST /grpc.health.v1.Health/Check HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\n" +
          "Content-Length: 2\\r\\nConnection: close\\r\\n\\r\\n{}")); });
      setTimeout(() => process.stdin.emit("data"), 100);
      socket.on("data", (chunk) => console.log(String(chunk))).on("error", (error) => console.log(error.code));
      socket.on("close", () => process.exit());
    `);
    await expect.poll(client.said).toContain("connected");
    await holdUp(2_000);
    await client.ended;
    expect(client.said()).toContain("HTTP/1.1 200 OK");
  });

  test("one whose answer to a ping came meanwhile is kept", async () => {
    await serve({ keepalive: { intervalMs: 20, timeoutMs: 400 } });
    const client = startClient(`
      const session = require("http2").connect("http://" + host + ":" + port);
      let pings = 0;
      session.on("ping", () => console.log("ping", ++pings)).on("error", (error) => console.log(error.code));
      session.on("close", () => { console.log("closed"); process.exit(); });
      process.on("SIGTERM", () => process.exit());
      setTimeout(() => process.exit(), 5_000);
    `);
    await expect.poll(client.said).toContain("ping 2");
    for (let round = 0; round < 3; round++) await holdUp(1_000);
    await client.ended;
    expect(client.said()).not.toContain("closed");
  });
});

describe("a connection that is silent is ended", () => {
  test("one that answers no ping and sends nothing", async () => {
    await serve({ keepalive: { intervalMs: 20, timeoutMs: 40 } });
    const [host, port] = server.address.split(":");
    const socket = connectTcp(Number(port), host);
    socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "latin1");
    await once(socket.resume(), "close");
    expect(await metric("kpng_connections_ended_total", { reason: "silent" })).toBe(1);
  });

  test("but not one that answers no ping and sends something else: its answer may wait behind what it reads", async () => {
    await serve({ keepalive: { intervalMs: 20, timeoutMs: 100 } });
    const [host, port] = server.address.split(":");
    const socket = connectTcp(Number(port), host);
    socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "latin1");
    let isClosed = false;
    socket.resume().once("close", () => {
      isClosed = true;
    });
    // PRIORITY frames, which mean nothing any more (RFC 9113 §5.3.2).
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
  const half = "POST /grpc.health.v1.Health/Check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
  test.each([
    { name: "half a preface", bytes: "PRI * HTT" },
    { name: "HTTP/2 without a call", bytes: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" },
    { name: "calls of HTTP/2 that ask for nothing", bytes: silentCalls },
    { name: "half a head of HTTP/1.1", bytes: half },
    { name: "a body of HTTP/1.1 that does not end", bytes: `${half}Content-Length: 20\r\n\r\n{` },
  ])("$name", async ({ bytes }) => {
    await serve({ idleMs: 60, firstBytesMs: 60 });
    const [host, port] = server.address.split(":");
    const socket = connectTcp(Number(port), host);
    socket.on("error", () => undefined);
    socket.write(bytes, "latin1");
    await once(socket.resume(), "close");
    await expect.poll(() => metric("kpng_connections")).toBe(0);
  });

  test("but not one with a call, over either version of HTTP", async () => {
    await serve({ idleMs: 30 });
    const http2 = await openWatch();
    const transport = createConnectTransport({ baseUrl: `http://${server.address}`, httpVersion: "1.1" });
    const stop = new AbortController();
    const options = { signal: stop.signal };
    const http1 = createClient(NodeViewService, transport).watchNodeView({ nodeName: "n1" }, options);
    const iterator = http1[Symbol.asyncIterator]();
    await iterator.next();
    for (let passed = 0; passed < 10; passed++) await new Promise((resolve) => setTimeout(resolve, 30));
    const next = iterator.next();
    const { byteCount } = http2;
    store.apply([{ kind: "put-service", service: service({ name: "other" }) }]);
    expect((await next).value?.ops.length).toBeGreaterThan(0);
    await http2.received(byteCount + 1);
    stop.abort();
    await next;
  });
});

describe("a connection that has lasted long enough", () => {
  test("hears GOAWAY, then its stream ends, and then it is gone", async () => {
    await serve({ maxAgeMs: 50, agePaceMs: 1 });
    const watch = await openWatch();
    await watch.ended;
    expect({ status: watch.status, pushback: watch.pushback }).toEqual({ status: "14", pushback: "0" });
    await expect.poll(() => watch.events.at(-1)).toBe("close of session");
    expect(watch.events.slice(0, 3)).toEqual(["goaway", "trailers", "close of stream"]);
    expect(await metric("kpng_connections_ended_total", { reason: "age" })).toBe(1);
  });

  test("is served to the end of the batch in progress", async () => {
    // More than the windows of HTTP/2 let through at once.
    store.replace({
      services: Array.from({ length: 500 }, (_, index) =>
        service({ name: `s${index}`, annotations: { text: "x".repeat(1_000) } }),
      ),
    });
    await serve({ maxAgeMs: 50, agePaceMs: 1 });
    const watch = new WatchStream(dialHttp2(server.address));
    streams.push(watch);
    await watch.received();
    watch.stream.pause();
    await once(watch.session, "goaway");
    watch.stream.resume();
    await watch.ended;
    expect(watch.status).toBe("14");
    expect(watch.byteCount).toBeGreaterThan(500_000);
  });

  test("goes alone: the next one waits until the pace lets it", async () => {
    await serve({ maxAgeMs: 40, agePaceMs: 3_600_000 });
    const watches: WatchStream[] = [];
    for (let count = 0; count < 5; count++) watches.push(await openWatch());
    const gone = () => watches.filter(({ events }) => events.includes("goaway")).length;
    await expect.poll(gone).toBe(1);
    // By now all have reached their age, several times.
    for (let passed = 0; passed < 10; passed++) await new Promise((resolve) => setTimeout(resolve, 40));
    expect(gone()).toBe(1);
  });

  test.each([
    {
      name: "Connect over HTTP/1.1",
      make: (baseUrl: string) => createConnectTransport({ baseUrl, httpVersion: "1.1" }),
    },
    { name: "Connect over HTTP/2", make: (baseUrl: string) => createConnectTransport({ baseUrl, httpVersion: "2" }) },
    { name: "gRPC-Web", make: (baseUrl: string) => createGrpcWebTransport({ baseUrl, httpVersion: "1.1" }) },
    { name: "gRPC", make: (baseUrl: string) => createGrpcTransport({ baseUrl }) },
  ])("ends all kinds of calls that wait, over $name, and the next call is served", async ({ make }) => {
    await serve({ maxAgeMs: 50, agePaceMs: 1 });
    const transport = make(`http://${server.address}`);
    const endOf = async (messages: AsyncIterable<unknown>): Promise<ConnectError> => {
      try {
        for await (const _ of messages);
      } catch (error) {
        return ConnectError.from(error);
      }
      throw new Error("it ended without an error");
    };
    for (const call of [
      () => createClient(NodeViewService, transport).watchNodeView({ nodeName: "n1" }),
      () => createClient(Health, transport).watch({ service: "" }),
      () => createClient(NodeViewService, transport).watchNodeView({ nodeName: "n1" }),
    ]) {
      const error = await endOf(call());
      expect({ code: error.code, pushback: pushbackOf(error) }).toEqual({ code: Code.Unavailable, pushback: 0 });
    }
  });

  test("is UNAVAILABLE with a pushback to a client of another library, and it is served when it comes again", async () => {
    await serve({ maxAgeMs: 50, agePaceMs: 1 });
    const watch = new GrpcJsWatch(server.address, "local");
    const status = new Promise<StatusObject>((resolve) => watch.call.once("status", resolve));
    await watch.ask({ NodeName: "n1" });
    watch.send({ NodeName: "n1" });
    const { code, metadata } = await status;
    expect({ code, pushback: metadata.get("grpc-retry-pushback-ms") }).toEqual({ code: 14, pushback: ["0"] });
    watch.close();
    const again = new GrpcJsWatch(server.address, "local");
    expect((await again.ask({ NodeName: "n1" })).length).toBeGreaterThan(1);
    again.close();
  });

  test("ends a reflection call that waits for questions", async () => {
    await serve({ maxAgeMs: 50, agePaceMs: 1 });
    const transport = createGrpcTransport({ baseUrl: `http://${server.address}` });
    const asked = Promise.withResolvers<void>();
    async function* questions() {
      yield { host: "", messageRequest: { case: "listServices" as const, value: "" } };
      await asked.promise;
    }
    let count = 0;
    for await (const _ of createClient(ServerReflection, transport).serverReflectionInfo(questions())) count++;
    expect(count).toBe(1);
    asked.resolve();
  });

  test("is left alone on a unix socket", async () => {
    const folder = mkdtempSync(join(tmpdir(), "kpng-age-"));
    const path = join(folder, "api.sock");
    try {
      await serve({ listen: [`unix://${path}`], maxAgeMs: 30, agePaceMs: 1 });
      const transport = createGrpcTransport({
        baseUrl: "http://localhost",
        nodeOptions: { createConnection: () => connectTcp(path) },
      });
      const stop = new AbortController();
      const options = { signal: stop.signal };
      const watch = createClient(NodeViewService, transport).watchNodeView({ nodeName: "n1" }, options);
      const iterator = watch[Symbol.asyncIterator]();
      await iterator.next();
      for (let passed = 0; passed < 10; passed++) await new Promise((resolve) => setTimeout(resolve, 30));
      const next = iterator.next();
      store.apply([{ kind: "put-service", service: service({ name: "other" }) }]);
      expect((await next).done).toBe(false);
      stop.abort();
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe("over TLS", () => {
  let files: TestCertificates;
  beforeAll(() => {
    files = makeCertificates();
  });
  afterAll(() => files.remove());

  async function serveTls(options: Parameters<typeof serveStore>[1]): Promise<SecureContextOptions> {
    await serve({ ...options, tls: readServerTls("", { ...files.server, ca: files.ca }) });
    const { key, crt } = files.client;
    return { ca: readFileSync(files.ca), key: readFileSync(key), cert: readFileSync(crt) };
  }

  test("a connection that has lasted long enough hears GOAWAY, and then its stream ends", async () => {
    const context = await serveTls({ maxAgeMs: 200, agePaceMs: 1 });
    const session = connectHttp2(`https://${server.address}`, { ...context, checkServerIdentity: () => undefined });
    const watch = new WatchStream(session);
    streams.push(watch);
    await watch.received(40);
    await watch.ended;
    expect({ status: watch.status, pushback: watch.pushback }).toEqual({ status: "14", pushback: "0" });
    expect(watch.events.slice(0, 2)).toEqual(["goaway", "trailers"]);
  });

  test.each([
    { name: "HTTP/1.1 without a request", protocol: "http/1.1", bytes: "" },
    { name: "HTTP/1.1 with half of one", protocol: "http/1.1", bytes: "GET / HTTP/1.1\r\nHost" },
    { name: "HTTP/2 without a call", protocol: "h2", bytes: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" },
  ])("$name is ended", async ({ protocol, bytes }) => {
    const context = await serveTls({ idleMs: 60 });
    const [host, port] = server.address.split(":");
    const tls = { ...context, checkServerIdentity: () => undefined, ALPNProtocols: [protocol] };
    const socket = connectTls({ host, port: Number(port), ...tls });
    socket.on("error", () => undefined);
    await once(socket, "secureConnect");
    expect(socket.alpnProtocol).toBe(protocol);
    socket.write(bytes, "latin1");
    await once(socket.resume(), "close");
    await expect.poll(() => metric("kpng_connections")).toBe(0);
  });
});

describe("a watcher that stops", () => {
  test("is not ready, takes nobody, serves those that are there, and lets one go after the other", async () => {
    const clock = new ManualClock();
    await serve({ drainMs: 5_000, drainClock: clock });
    server.health.setReady("source");
    const watches: WatchStream[] = [];
    for (let count = 0; count < 20; count++) watches.push(await openWatch());
    const told = () => metric("kpng_connections_ended_total", { reason: "drain" });
    const stopped = server.stop();
    for (const [index, watch] of watches.entries()) {
      await expect.poll(() => watch.events.slice(0, 2), { interval: 5 }).toEqual(["goaway", "trailers"]);
      expect({ status: watch.status, pushback: watch.pushback }).toEqual({ status: "14", pushback: "0" });
      expect(server.health.isReady).toBe(false);
      expect(await told()).toBe(index + 1);
      const others = watches.slice(index + 1);
      // Those who are still there hear what is new.
      const counts = others.map(({ byteCount }) => byteCount);
      store.apply([{ kind: "put-service", service: service({ name: `other${index}` }) }]);
      await Promise.all(others.map((other, at) => other.received((counts[at] ?? 0) + 1)));
      expect(others.flatMap(({ events }) => events)).toEqual([]);
      for (const other of others) other.ask();
      if (index === 0) {
        const refused = dialHttp2(server.address);
        await new Promise((resolve) => refused.once("close", resolve));
      }
      await clock.advance(50);
    }
    await stopped;
    expect(await told()).toBe(20);
  });

  test("ends those that do not go, when its time is over", async () => {
    store.replace({
      services: Array.from({ length: 2_000 }, (_, index) =>
        service({ name: `s${index}`, annotations: { text: "x".repeat(1_000) } }),
      ),
    });
    await serve({ drainMs: 200 });
    const stalled = new WatchStream(dialHttp2(server.address));
    streams.push(stalled);
    await stalled.received();
    stalled.stream.pause();
    await server.stop();
    await expect.poll(() => metric("kpng_subscribers", { kind: "local" })).toBe(0);
  });

  test("asks nobody when it has no time", async () => {
    await serve({ drainMs: 0 });
    const watch = await openWatch();
    await server.stop();
    await watch.ended;
    expect(await metric("kpng_connections_ended_total", { reason: "drain" })).toBe(0);
  });
});

test("requests that are never read again do not keep a connection from going", async () => {
  await serve({ maxAgeMs: 50, agePaceMs: 1 });
  const watch = await openWatch();
  watch.stream.write(encodeRequest({ NodeName: "n1" }).subarray(0, 3));
  await watch.ended;
  expect(watch.status).toBe("14");
});
