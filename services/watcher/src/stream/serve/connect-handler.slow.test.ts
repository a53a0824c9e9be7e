import { once } from "node:events";
import { pingHeader } from "@kpng/process/connection/dial.ts";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { node, service } from "../../testing/build.ts";
import { dialHttp2, RawWatch } from "../../testing/raw-watch.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";
import { readTimeout } from "./connect-handler.ts";

test.each([
  { header: undefined, timeout: undefined },
  { header: "2H", timeout: 7_200_000 },
  { header: "3M", timeout: 180_000 },
  { header: "5S", timeout: 5_000 },
  { header: "1500m", timeout: 1_500 },
  { header: "2500u", timeout: 2.5 },
  { header: "0n", timeout: 0 },
  { header: "99999999H", timeout: 2 ** 31 - 1 },
  { header: "123456789m", timeout: "invalid" },
  { header: "5", timeout: "invalid" },
  { header: "-5S", timeout: "invalid" },
  { header: "5s", timeout: "invalid" },
])("the timeout of the header $header is $timeout", ({ header, timeout }) => {
  expect(readTimeout(header)).toBe(timeout);
});

describe("a Watch with a deadline", () => {
  let store: Store;
  let server: TestServer;
  const watches: RawWatch[] = [];

  beforeEach(async () => {
    store = new Store();
    store.replace({ services: [service()], slices: [], nodes: [node("n1")] });
    server = await serveStore(store, { drainMs: 0 });
  });

  afterEach(async () => {
    for (const { session } of watches.splice(0)) session.destroy();
    await server.stop();
  });

  function open(headers: Readonly<Record<string, string>>): RawWatch {
    const watch = new RawWatch(dialHttp2(server.address), undefined, headers);
    watches.push(watch);
    return watch;
  }

  test.each([
    { headers: {}, isShared: true },
    { headers: { "grpc-timeout": "60S" }, isShared: true },
    // connect-node decodes and encodes each message for each stream, and does not say how often the watcher pings.
    { headers: { "grpc-encoding": "gzip" }, isShared: false },
  ])("with $headers, it is answered with frames that all streams share: $isShared", async ({ headers, isShared }) => {
    const [response] = await once(open(headers).stream, "response");
    expect(pingHeader in response).toBe(isShared);
  });

  test("ends with DEADLINE_EXCEEDED when the deadline passes, and its subscriber is released", async () => {
    const watch = open({ "grpc-timeout": "300m" });
    await watch.ended;
    expect(watch.status).toBe("4");
    expect(watch.byteCount).toBeGreaterThan(0);
    expect(server.subscribers.open.size).toBe(0);
  });

  test("fails with INVALID_ARGUMENT if the deadline is invalid", async () => {
    const watch = open({ "grpc-timeout": "soon" });
    await watch.ended;
    expect(watch.status).toBe("3");
    expect(server.subscribers.open.size).toBe(0);
  });
});
