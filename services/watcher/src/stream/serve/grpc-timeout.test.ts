import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { endpoint, node, service, slice } from "../../testing/build.ts";
import { dialHttp2, RawWatch } from "../../testing/raw-watch.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";
import { readTimeout } from "./grpc-timeout.ts";

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
  /** Enough that decoding and encoding each item again is visible. */
  const serviceCount = 1_000;
  let store: Store;
  let server: TestServer;
  const watches: RawWatch[] = [];

  beforeEach(async () => {
    store = new Store();
    const names = Array.from({ length: serviceCount }, (_, index) => `web-${index}`);
    store.replace({
      services: names.map((name) => service({ name })),
      slices: names.map((name, index) =>
        slice(
          Array.from({ length: 10 }, (_, pod) => endpoint(`10.${pod}.${index >> 8}.${index & 255}`)),
          { name, serviceName: name },
        ),
      ),
      nodes: [node("n1")],
    });
    server = await serveStore(store, { drainMs: 0 });
  });

  afterEach(async () => {
    for (const { session } of watches.splice(0)) session.destroy();
    await server.stop();
  });

  function open(timeout?: string): RawWatch {
    const watch = new RawWatch(
      dialHttp2(server.address),
      undefined,
      timeout === undefined ? {} : { "grpc-timeout": timeout },
    );
    watches.push(watch);
    return watch;
  }

  test("costs as much as one without", { timeout: 120_000 }, async () => {
    // The size of the view, and the shared frames.
    const first = open();
    await first.received(serviceCount * 100);
    await sleep(100);
    const { byteCount } = first;
    const cpuMs = async (timeout?: string): Promise<number> => {
      const before = process.cpuUsage();
      for (let count = 0; count < 8; count += 1) {
        const watch = open(timeout);
        while (watch.byteCount < byteCount) await sleep(2);
      }
      const { user, system } = process.cpuUsage(before);
      return (user + system) / 1_000;
    };
    await cpuMs();
    const [without, withDeadline] = [await cpuMs(), await cpuMs("60S")];
    // connect-node decodes and encodes each message.
    expect(withDeadline).toBeLessThan(1.7 * without + 50);
  });

  test("ends with DEADLINE_EXCEEDED when the deadline passes, and its subscriber is released", async () => {
    const watch = open("300m");
    await watch.ended;
    expect(watch.status).toBe("4");
    expect(watch.byteCount).toBeGreaterThan(0);
    expect(server.subscribers.open.size).toBe(0);
  });

  test("fails with INVALID_ARGUMENT if the deadline is invalid", async () => {
    const watch = open("soon");
    await watch.ended;
    expect(watch.status).toBe("3");
    expect(server.subscribers.open.size).toBe(0);
  });
});
