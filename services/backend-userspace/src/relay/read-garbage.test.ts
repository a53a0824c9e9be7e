import { once } from "node:events";
import { constants, type PerformanceEntry, PerformanceObserver } from "node:perf_hooks";
import { expect, test } from "vitest";
import { RunningService, readAll, TestEndpoint } from "../testing/running-service.ts";
import { ReadGarbage } from "./connection.ts";

test("an upload of 256 MiB makes V8 collect its young generation, and hardly ever the whole heap", async () => {
  const block = Buffer.alloc(1_048_576);
  let received = 0;
  await using endpoint = await TestEndpoint.open((socket) => {
    socket.on("data", ({ length }) => {
      received += length;
    });
    socket.on("end", () => socket.end("taken"));
  });
  await using service = await RunningService.open({ endpoints: [endpoint.at] });
  const client = await service.connect();
  const collections = { minor: 0, major: 0 };
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const { kind } = (entry as PerformanceEntry & { readonly detail: { readonly kind: number } }).detail;
      if (kind === constants.NODE_PERFORMANCE_GC_MAJOR) collections.major++;
      else if (kind === constants.NODE_PERFORMANCE_GC_MINOR) collections.minor++;
    }
  });
  observer.observe({ entryTypes: ["gc"] });
  for (let sent = 0; sent < 256; sent++) if (!client.write(block)) await once(client, "drain");
  client.end();
  expect(await readAll(client)).toBe("taken");
  // Entries are delivered in a later turn.
  await new Promise((resolve) => setImmediate(resolve));
  observer.disconnect();
  expect(received).toBe(256 * block.length);
  // Left to itself, V8 makes one minor collection, and collects the whole heap instead.
  expect(collections.minor).toBeGreaterThanOrEqual(60);
  expect(collections.major).toBeLessThan(5);
});

test("the function gc is not in the global object of the process", () => {
  new ReadGarbage().add(5 * 1_048_576);
  expect("gc" in globalThis).toBe(false);
});
