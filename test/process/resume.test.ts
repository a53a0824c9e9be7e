import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { followView } from "@kpng/backend-kit/receive/follow-view.ts";
import type { ViewUpdate } from "@kpng/backend-kit/types/sync-update.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { createLog } from "@kpng/process/log.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { service } from "@kpng/watcher/testing/build.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { expect, test } from "vitest";
import { makeCluster } from "../scale/synthetic.ts";

/** Creates the store of a replica; all replicas have the same 500 Services of 10 endpoints. */
function makeStore(): Store {
  const store = new Store();
  store.replace(makeCluster({ services: 500, endpoints: 10, nodes: 10 }));
  return store;
}

async function sentBytes(server: TestServer): Promise<number> {
  return (await server.metrics.getSingleMetric("kpng_sent_bytes_total")?.get())?.values[0]?.value ?? 0;
}

test("the node of a killed replica resumes at another one and receives only the difference", async () => {
  const folder = mkdtempSync(join(tmpdir(), "kpng-resume-"));
  const address = `unix://${join(folder, "api.sock")}`;
  const stop = new AbortController();
  const servers: TestServer[] = [];
  const serve = async (store: Store): Promise<TestServer> => {
    const server = await serveStore(store, { listen: [address] });
    servers.push(server);
    return server;
  };
  try {
    const first = await serve(makeStore());
    const log = createLog("error", () => undefined);
    const view = followView(
      { transport: dial({ api: address }), nodeName: "node-1", log, errorDelayMs: 20 },
      stop.signal,
    );
    const next = async (): Promise<ViewUpdate> => {
      const result = await view.next();
      if (result.done) throw new Error("the view ended");
      return result.value;
    };
    expect((await next()).view.services.size).toBe(500);
    const whole = await sentBytes(first);
    const pending = next();
    await first.stop();

    const other = makeStore();
    other.apply([
      { kind: "delete-service", key: "scale/service-7" },
      { kind: "put-service", service: service({ name: "new" }) },
    ]);
    const second = await serve(other);
    const update = await pending;
    // Deleting the Service deletes its ten endpoints, too.
    expect(update).toMatchObject({
      touched: new Set(["scale/service-7", "ns/new"]),
      counts: { services: 2, endpoints: 10 },
    });
    expect(update.view.services.size).toBe(500);
    // Compared with a compressed whole view.
    expect(await sentBytes(second)).toBeLessThan(whole / 10);
  } finally {
    stop.abort();
    for (const server of servers) await server.stop();
    rmSync(folder, { recursive: true });
  }
});
