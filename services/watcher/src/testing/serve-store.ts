import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { inspection } from "../inspect/inspection.ts";
import type { Store } from "../store/store.ts";
import type { ServeOptions } from "../stream/serve/call-handler.ts";
import { serveTask } from "../stream/serve/serve.ts";
import { proxyNamesOf } from "../stream/session/requests.ts";
import { Subscribers } from "../stream/session/subscribers.ts";

/** A running server, started by {@link serveStore}. */
export interface TestServer {
  /** `host:port`, or the unix address. */
  readonly address: string;
  readonly health: Health;
  readonly metrics: Registry;
  readonly subscribers: Subscribers;
  stop(): Promise<void>;
}

/** Serves a store as a watcher does, with its inspection, by default on a free loopback port. */
export async function serveStore(store: Store, options: Partial<ServeOptions> = {}): Promise<TestServer> {
  const stop = new AbortController();
  const health = new Health();
  const registry = new Registry();
  const subscribers = new Subscribers(store, registry);
  const proxyNames = proxyNamesOf([]);
  const listening = Promise.withResolvers<string>();
  const task = serveTask({
    health,
    subscribers,
    registry,
    proxyNames,
    moreServices: [inspection({ subscribers, proxyNames })],
    listen: ["tcp://127.0.0.1:0"],
    log: createLog("error", () => undefined),
    onListening: ([address]) => listening.resolve(address ?? ""),
    ...options,
  });
  const running = task.run(stop.signal);
  running.catch(listening.reject);
  return {
    address: await listening.promise,
    health,
    metrics: registry,
    subscribers,
    stop: async () => {
      stop.abort();
      await running;
    },
  };
}
