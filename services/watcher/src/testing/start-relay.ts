import { dial } from "@kpng/process/connection/dial.ts";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { type ApiSourceOptions, apiSource } from "@kpng/source/api/api-source.ts";
import { Registry } from "prom-client";
import { onTestFinished } from "vitest";
import { Store } from "../store/store.ts";

/** Starts a relay of the watcher at `api`, until the test ends. `lines` are those of its log. */
export function startRelay(api: string, options: Partial<ApiSourceOptions> = {}) {
  const [store, metrics, stop] = [new Store(), new Registry(), new AbortController()];
  const lines: string[] = [];
  const log = createLog("debug", (line) => lines.push(line));
  const source = apiSource({ transport: dial({ api }), sink: store, health: new Health(), metrics, log, ...options });
  const running = source.run(stop.signal);
  onTestFinished(async () => {
    stop.abort();
    await running;
  });
  return { store, metrics, lines };
}
