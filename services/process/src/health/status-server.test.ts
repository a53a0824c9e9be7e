import { once } from "node:events";
import { request } from "node:http";
import { connect, type Socket } from "node:net";
import { Gauge, Registry } from "prom-client";
import { expect, onTestFinished, test } from "vitest";
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

/** Serves health and these metrics until the test ends. Returns the port. */
async function serve(metrics = new Registry()): Promise<number> {
  const stop = new AbortController();
  const port = await freePort();
  const running = statusServerTask({ address: `127.0.0.1:${port}`, health: new Health(), metrics }).run(stop.signal);
  onTestFinished(async () => {
    stop.abort();
    await running;
  });
  return port;
}

/** Opens a connection that sends `text`, until the test ends. */
async function send(port: number, text: string): Promise<Socket> {
  const socket = connect(port, "127.0.0.1").on("error", () => undefined);
  onTestFinished(() => void socket.destroy());
  await once(socket, "connect");
  socket.write(text);
  return socket;
}

test("a malformed path is answered with 404 and does not end the process", async () => {
  const port = await serve();
  for (const path of ["//", "http://[", "/%", "*", "/other"]) expect(await statusOf(port, path), path).toBe(404);
  expect(await statusOf(port, "/livez?verbose=true")).toBe(200);
});

test.each([
  { name: "send nothing", text: "" },
  { name: "send half a request", text: "GET /livez HTTP/1.1\r\nhost: x\r\n" },
  { name: "send a request and read nothing", text: "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n" },
])("a probe is answered while 40 connections $name", async ({ text }) => {
  const port = await serve();
  for (let count = 0; count < 40; count += 1) (await send(port, text)).pause();
  expect(await statusOf(port, "/livez")).toBe(200);
});

test("a client that does not wait for its answer gets no second one", async () => {
  let count = 0;
  const metrics = new Registry();
  const gauge = new Gauge({ name: "x", help: "x", registers: [metrics], collect: () => void count++ });
  const socket = await send(await serve(metrics), "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1_000));
  await once(socket.resume(), "close");
  expect(count).toBe(1);
  expect(gauge).toBeDefined();
});
