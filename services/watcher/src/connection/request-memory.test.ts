import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createLog } from "@kpng/process/log.ts";
import { service } from "@kpng/source/testing/build.ts";
import { expect, test } from "vitest";
import { dialHttp2, encodeRequest, RawWatch } from "../testing/raw-watch.ts";
import { WatchedServer } from "../testing/watched-server.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

test.each([
  { what: "are incomplete", before: 0, message: Buffer.concat([Buffer.of(0, 0, 0, 0x3e, 0x80), Buffer.alloc(15_000)]) },
  {
    what: "come faster than they are read",
    // More than a stream may send at once: the next request waits for a second.
    before: 120,
    message: encodeRequest({ LastFailure: { Error: "e".repeat(15_000) } }),
  },
])(
  "the connection that holds most of the memory for requests ends when requests $what",
  {
    timeout: 60_000,
  },
  async ({ before, message }) => {
    const lines: string[] = [];
    const log = createLog("info", (line) => lines.push(line));
    const watched = new WatchedServer();
    await watched.serve({ drainMs: 0, maxRequestBytes: 256 * 1_024, log });
    const good = await watched.openWatch();
    const session = dialHttp2(watched.address);
    for (let stream = 0; stream < 40; stream += 1) {
      const hostile = new RawWatch(session);
      await hostile.received(40);
      for (let count = 0; count < before; count += 1) hostile.ask({ Ack: { Failed: 1n } });
      hostile.stream.write(message);
    }
    await expect.poll(() => session.destroyed, { timeout: 30_000 }).toBe(true);
    expect(await watched.refused("requests")).toBe(1);
    expect(lines.join()).toMatch(/"held":"\d\.\d MiB","limit":"0\.3 MiB"/);
    const { byteCount } = good;
    watched.store.apply([{ kind: "put-service", service: service({ name: "later" }) }]);
    await good.received(byteCount + 1);
    expect(good.stream.closed).toBe(false);
    await watched.stop();
  },
);

test("the beginning of a request does not keep in memory what arrived with it", async () => {
  const watched = new WatchedServer();
  await watched.serve();
  const watches = Array.from({ length: 100 }, () => watched.dialWatch());
  await Promise.all(watches.map((watch) => watch.received(40)));
  collectGarbage();
  const { arrayBuffers } = process.memoryUsage();
  const request = encodeRequest({ LastFailure: { Error: "e".repeat(15_000) } });
  for (const { stream } of watches) stream.write(Buffer.concat([request, request.subarray(0, 3)]));
  watched.store.apply([{ kind: "put-service", service: service({ name: "later" }) }]);
  await Promise.all(watches.map((watch) => watch.received(watch.byteCount + 1)));
  const keptBytes = (): number => {
    collectGarbage();
    return process.memoryUsage().arrayBuffers - arrayBuffers;
  };
  await expect.poll(keptBytes).toBeLessThan((watches.length * request.length) / 2);
  await watched.stop();
});
