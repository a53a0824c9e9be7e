import { once } from "node:events";
import { request } from "node:http";
import { connect } from "node:net";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { freePorts } from "../../../../test/cluster/ports.ts";
import { createLog } from "../log.ts";
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
  const [port = 0] = await freePorts(1);
  const health = new Health();
  const running = statusServerTask({ address: `127.0.0.1:${port}`, health, metrics: new Registry() }).run(stop.signal);
  for (const path of ["//", "http://[", "/%", "*", "/other"]) expect(await statusOf(port, path), path).toBe(404);
  expect(await statusOf(port, "/livez?verbose=true")).toBe(200);
  stop.abort();
  await running;
});

test("connections beyond the limit are closed, counted and logged", async () => {
  const stop = new AbortController();
  const [port = 0] = await freePorts(1);
  const metrics = new Registry();
  const lines: string[] = [];
  const log = createLog("info", (line) => lines.push(line));
  const running = statusServerTask({ address: `127.0.0.1:${port}`, health: new Health(), metrics, log }).run(
    stop.signal,
  );
  const sockets = await Promise.all(
    Array.from({ length: 40 }, async () => {
      const socket = connect(port, "127.0.0.1").resume();
      await once(socket, "connect");
      return socket;
    }),
  );
  const counted = () => metrics.getSingleMetricAsString("kpng_status_refused_total");
  await expect.poll(counted, { timeout: 30_000 }).toContain("kpng_status_refused_total 8");
  expect(lines.join()).toContain("connection for health and metrics refused");
  for (const socket of sockets) socket.destroy();
  await expect.poll(() => statusOf(port, "/livez").catch(() => 0), { timeout: 30_000 }).toBe(200);
  stop.abort();
  await running;
});
