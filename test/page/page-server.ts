import { Health } from "@kpng/process/health/health.ts";
import { statusServerTask } from "@kpng/process/health/status-server.ts";
import { createLog } from "@kpng/process/log.ts";
import { inspection } from "@kpng/watcher/inspect/inspection.ts";
import { type StatusPageOptions, statusPage } from "@kpng/watcher/page/status-page.ts";
import type { Store } from "@kpng/watcher/store/store.ts";
import { proxyNamesOf } from "@kpng/watcher/stream/session/requests.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { Registry } from "prom-client";
import { freePort } from "../cluster/ports.ts";

/** A watcher, and the address of its status page. */
export interface PageServer extends TestServer {
  readonly page: string;
  /** Health of the watcher, which its findings report. */
  readonly health: Health;
}

/** Serves a store, and its status page on a port of its own, by default a free one, as `kpng … to-api` does. */
export async function servePage(
  store: Store,
  { page, trust = {}, tokens }: Partial<StatusPageOptions> & { readonly page?: string } = {},
): Promise<PageServer> {
  const server = await serveStore(store, { drainMs: 0 });
  const health = new Health();
  const api = inspection({ subscribers: server.subscribers, proxyNames: proxyNamesOf([]), health });
  const address = page ?? `127.0.0.1:${await freePort()}`;
  const pages = statusPage({ api, trust, tokens, log: createLog("error", () => undefined) });
  const stop = new AbortController();
  const running = statusServerTask({ address, health, metrics: new Registry(), pages }).run(stop.signal);
  while (!(await fetch(`http://${address}/livez`).catch(() => undefined))?.ok);
  return {
    ...server,
    page: address,
    health,
    stop: async () => {
      stop.abort();
      await running;
      await server.stop();
    },
  };
}
