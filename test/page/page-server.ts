import { inspection } from "@kpng/watcher/inspect/inspection.ts";
import { statusPage } from "@kpng/watcher/page/status-page.ts";
import type { Store } from "@kpng/watcher/store/store.ts";
import type { ServeOptions } from "@kpng/watcher/stream/serve/serve-options.ts";
import { proxyNamesOf } from "@kpng/watcher/stream/session/requests.ts";
import { Subscribers } from "@kpng/watcher/stream/session/subscribers.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { Registry } from "prom-client";

/** Serves a store with the inspect API and the status page, as `kpng … to-api` does. */
export async function servePage(store: Store, options: Partial<ServeOptions> = {}): Promise<TestServer> {
  const subscribers = new Subscribers(new Registry());
  const proxyNames = proxyNamesOf([]);
  const api = inspection({ store, subscribers, proxyNames });
  return await serveStore(store, {
    subscribers,
    proxyNames,
    moreServices: [api],
    page: statusPage(api.context),
    drainMs: 0,
    ...options,
  });
}
