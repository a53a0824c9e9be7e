import { existsSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";

let server: TestServer;
beforeEach(async () => {
  server = await serveStore(new Store());
});
afterEach(() => server.stop());

test("HTTP/1.1 is not spoken: the connection ends, and the refusal is counted", async () => {
  await expect(fetch(`http://${server.address}/`)).rejects.toThrow();
  const refusals = () => server.metrics.getSingleMetricAsString("kpng_refused_total");
  await expect.poll(refusals).toContain('kpng_refused_total{reason="protocol"} 1');
});

test("a server whose port is in use fails, and opens no other address", async () => {
  const path = join(temporaryFolder(), "api.sock");
  const listen = [`unix://${path}`, `tcp://${server.address}`];
  await expect(serveStore(new Store(), { listen })).rejects.toThrow(/\[LISTEN_FAILED\] cannot listen on tcp:/);
  expect(existsSync(path)).toBe(false);
});
