import { request } from "node:http";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { freePorts } from "../../../../test/cluster/ports.ts";
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
