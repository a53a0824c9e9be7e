import { Health } from "@kpng/process/health/health.ts";
import { statusServerTask } from "@kpng/process/health/status-server.ts";
import { createLog } from "@kpng/process/log.ts";
import { inspection } from "@kpng/watcher/inspect/inspection.ts";
import { statusPage } from "@kpng/watcher/page/status-page.ts";
import type { Store } from "@kpng/watcher/store/store.ts";
import { proxyNamesOf } from "@kpng/watcher/stream/session/requests.ts";
import { Subscribers } from "@kpng/watcher/stream/session/subscribers.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { Registry } from "prom-client";
import { freePorts } from "../cluster/ports.ts";

/** A watcher, and the address of its status page. */
export interface PageServer extends TestServer {
  readonly page: string;
}

/** Serves a store with the inspect API, and the status page on a port of its own, as `kpng … to-api` does. */
export async function servePage(store: Store, page?: string): Promise<PageServer> {
  const subscribers = new Subscribers(store, new Registry());
  const proxyNames = proxyNamesOf([]);
  const api = inspection({ store, subscribers, proxyNames });
  const server = await serveStore(store, { subscribers, proxyNames, moreServices: [api], drainMs: 0 });
  const address = page ?? `127.0.0.1:${(await freePorts(1))[0]}`;
  const log = createLog("error", () => undefined);
  const pages = statusPage({ api, trust: {}, log });
  const stop = new AbortController();
  const running = statusServerTask({ address, health: new Health(), metrics: new Registry(), pages }).run(stop.signal);
  return {
    ...server,
    page: address,
    stop: async () => {
      stop.abort();
      await running;
      await server.stop();
    },
  };
}
