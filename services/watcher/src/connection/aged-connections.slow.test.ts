import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect as connectTcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import type { StatusObject } from "@grpc/grpc-js";
import { Health } from "@kpng/model/gen/grpc/health/v1/health_pb.ts";
import { ServerReflection } from "@kpng/model/gen/grpc/reflection/v1/reflection_pb.ts";
import { NodeViewService } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import { pushbackOf } from "@kpng/process/connection/reconnect.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { GrpcJsWatch } from "../../../../test/peer/grpc-js-client.ts";
import { service } from "../testing/build.ts";
import { encodeRequest, type RawWatch } from "../testing/raw-watch.ts";
import { WatchedServer } from "../testing/watched-server.ts";

let watched: WatchedServer;
beforeEach(() => {
  watched = new WatchedServer();
});
afterEach(() => watched.stop());

test("clients of a stale watcher that is current again are no longer asked to move", async () => {
  await watched.serve({ drainMs: 0, ageIntervalMs: 100 });
  const watches: RawWatch[] = [];
  for (let count = 0; count < 10; count++) watches.push(await watched.openWatch());
  const moved = (): number => watches.filter(({ events }) => events.includes("goaway")).length;
  const { currency } = watched.store;
  currency.stale("the API server does not answer");
  currency.fresh();
  await expect.poll(moved).toBe(1);
  // Far more than the interval: the next ones would follow.
  await waitMs(500, new AbortController().signal);
  expect(moved()).toBe(1);
});

test("a connection that reached its maximum age while it waited to move from a stale watcher still moves", async () => {
  await watched.serve({ drainMs: 0, maxAgeMs: 200, ageIntervalMs: 400 });
  const watches = [await watched.openWatch(), await watched.openWatch()];
  const { currency } = watched.store;
  currency.stale("the API server does not answer");
  // Longer than the maximum age, shorter than the interval.
  await waitMs(300, new AbortController().signal);
  currency.fresh();
  await expect.poll(() => watches.filter(({ events }) => events.includes("goaway")).length).toBe(2);
});

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
    watched.store.replace({
      services: Array.from({ length: 500 }, (_, index) =>
        service({ name: `s${index}`, annotations: { text: "x".repeat(1_000) } }),
      ),
    });
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
  ])("ends all kinds of calls that wait, over $name, and the next call is served", async ({ make }) => {
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
    for (const call of [
      () => createClient(NodeViewService, transport).watchNodeView({ nodeName: "n1" }),
      () => createClient(Health, transport).watch({ service: "" }),
      () => createClient(NodeViewService, transport).watchNodeView({ nodeName: "n1" }),
    ]) {
      const error = await endOf(call());
      expect({ code: error.code, pushback: pushbackOf(error) }).toEqual({ code: Code.Unavailable, pushback: 0 });
    }
  });

  test("gives a client of another library UNAVAILABLE with a pushback, and serves its retry", async () => {
    await watched.serve({ maxAgeMs: 50, ageIntervalMs: 1 });
    const watch = new GrpcJsWatch(watched.address, "local");
    const status = new Promise<StatusObject>((resolve) => watch.call.once("status", resolve));
    await watch.ask({ NodeName: "n1" });
    watch.send({ NodeName: "n1" });
    const { code, metadata } = await status;
    expect({ code, pushback: metadata.get("grpc-retry-pushback-ms") }).toEqual({ code: 14, pushback: ["0"] });
    watch.close();
    const again = new GrpcJsWatch(watched.address, "local");
    expect((await again.ask({ NodeName: "n1" })).length).toBeGreaterThan(1);
    again.close();
  });

  test("ends a reflection call that waits for requests", async () => {
    await watched.serve({ maxAgeMs: 50, ageIntervalMs: 1 });
    const transport = createGrpcTransport({ baseUrl: `http://${watched.address}` });
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

  test("stays open on a unix socket", async () => {
    const folder = mkdtempSync(join(tmpdir(), "kpng-age-"));
    const path = join(folder, "api.sock");
    try {
      await watched.serve({ listen: [`unix://${path}`], maxAgeMs: 30, ageIntervalMs: 1 });
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
      watched.store.apply([{ kind: "put-service", service: service({ name: "other" }) }]);
      expect((await next).done).toBe(false);
      stop.abort();
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

test("requests that are never read do not keep a connection open", async () => {
  await watched.serve({ maxAgeMs: 50, ageIntervalMs: 1 });
  const watch = await watched.openWatch();
  watch.stream.write(encodeRequest({ NodeName: "n1" }).subarray(0, 3));
  await watch.ended;
  expect(watch.status).toBe("14");
});
