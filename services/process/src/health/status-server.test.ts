import { once } from "node:events";
import { request } from "node:http";
import { connect } from "node:net";
import { Gauge, Registry } from "prom-client";
import { expect, test } from "vitest";
import { freePort } from "../../../../test/cluster/ports.ts";
import { Health } from "./health.ts";
import { statusServerTask } from "./status-server.ts";

/** Requests a path unchanged; fetch would normalize it. */
async function statusOf(port: number, path: string): Promise<number | undefined> {
  const answer = Promise.withResolvers<number | undefined>();
  request({ port, host: "127.0.0.1", path }, (response) => {
    response.resume();
    answer.resolve(response.statusCode);
  })
    .on("error", answer.reject)
    .end();
  return answer.promise;
}

test("a malformed path is answered with 404 and does not end the process", async () => {
  const stop = new AbortController();
  const port = await freePort();
  const health = new Health();
  const running = statusServerTask({ address: `127.0.0.1:${port}`, health, metrics: new Registry() }).run(stop.signal);
  for (const path of ["//", "http://[", "/%", "*", "/other"]) expect(await statusOf(port, path), path).toBe(404);
  expect(await statusOf(port, "/livez?verbose=true")).toBe(200);
  stop.abort();
  await running;
});

/** Serves health on a free port, and opens `count` connections to it that send `text` and do not read. */
async function serveTo(count: number, text: string) {
  const stop = new AbortController();
  const port = await freePort();
  const options = { address: `127.0.0.1:${port}`, health: new Health(), metrics: new Registry() };
  const running = statusServerTask(options).run(stop.signal);
  const sockets = await Promise.all(
    Array.from({ length: count }, async () => {
      const socket = connect(port, "127.0.0.1").pause();
      socket.on("error", () => undefined);
      await once(socket, "connect");
      socket.write(text);
      return socket;
    }),
  );
  const end = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    stop.abort();
    await running;
  };
  return { port, end };
}

test.each([
  { name: "send nothing", text: "" },
  { name: "send half a request", text: "GET /livez HTTP/1.1\r\nhost: x\r\n" },
  { name: "send a request and read nothing", text: "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n" },
])("a probe is answered while 40 connections $name", async ({ text }) => {
  const { port, end } = await serveTo(40, text);
  expect(await statusOf(port, "/livez")).toBe(200);
  await end();
});

test("a client that does not wait for its answer gets no second one", async () => {
  let count = 0;
  const stop = new AbortController();
  const port = await freePort();
  const metrics = new Registry();
  const gauge = new Gauge({ name: "x", help: "x", registers: [metrics], collect: () => void count++ });
  const running = statusServerTask({ address: `127.0.0.1:${port}`, health: new Health(), metrics }).run(stop.signal);
  const socket = connect(port, "127.0.0.1").resume();
  socket.on("error", () => undefined);
  socket.write("GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1_000));
  await once(socket, "close");
  expect(count).toBe(1);
  expect(gauge).toBeDefined();
  stop.abort();
  await running;
});
