import { watcherTimeoutOption } from "@kpng/backend-kit/backend/backend-options.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { logLevelOption, type OptionSpec } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { runWithMain } from "@kpng/process/run/run-tasks.ts";
import type { Task } from "@kpng/process/task.ts";
import { inspection } from "@kpng/watcher/inspect/inspection.ts";
import { filterProxyNames } from "@kpng/watcher/source/filter-proxy-names.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { localTransport } from "@kpng/watcher/stream/serve/routes.ts";
import type { Command } from "commander";
import { withContext } from "../context/command-context.ts";
import { makeAnalyze } from "../inspect/analyze/analyze.ts";
import { describeEndpointCommand } from "../inspect/describe/describe-endpoint.ts";
import { describeServiceCommand } from "../inspect/describe/describe-service.ts";
import { explainCommand } from "../inspect/explain.ts";
import { changesCommand } from "../inspect/get/changes.ts";
import { endpointsCommand } from "../inspect/get/endpoints.ts";
import { nodesCommand } from "../inspect/get/nodes.ts";
import { servicesCommand } from "../inspect/get/services.ts";
import { subscribersCommand } from "../inspect/get/subscribers.ts";
import { viewCommand } from "../inspect/get/view.ts";
import { showProgress } from "../inspect/print/progress.ts";
import { withRequestErrors } from "../inspect/query/inspect-client.ts";
import type { InspectCommand } from "../inspect/query/inspect-command.ts";
import { recordedTransport } from "../inspect/record/recorded-transport.ts";
import { routesOptions } from "../sink/routes-options.ts";
import { readProxyNames } from "../source/proxy-names.ts";
import type { SourceCommand } from "../source/source-command.ts";
import { makeGroup, makeInspectCommand, type WithTransport } from "./inspect-tree.ts";

/**
 * `kpng SOURCE get|describe|explain|analyze`: query a watcher in this process about the objects of the source.
 *
 * `makeSource` adds them. Separate from `inspect.ts`, which has the same queries for a remote watcher and needs no code
 * of a watcher.
 */
export function makeInspectSource(source: SourceCommand, signal: AbortSignal): readonly Command[] {
  const withTransport: WithTransport = (options, work) =>
    withContext(options, "kpng-watcher", async (context) => {
      const store = new Store();
      const sink = filterProxyNames(store, readProxyNames(options));
      const routes = routesOptions(readProxyNames(options), store, context);
      const stop = new AbortController();
      const local = localTransport({ ...routes, moreServices: [inspection(routes)] }, stop.signal);
      const transport = source.name === "replay" ? recordedTransport(local, String(options.input)) : local;
      const main: Task = {
        name: "inspect",
        run: async (ended) => {
          const limitMs = source.asksServer === true ? Number(options.watcherTimeout) : 0;
          if (!(await hasState(store, context.health, limitMs, ended))) return;
          await withRequestErrors("watcher in this process", ended, () => work(transport));
        },
      };
      try {
        await runWithMain(main, [source.make({ ...options, isQuery: true }, sink, context)], signal);
      } finally {
        stop.abort();
      }
    });
  const options = [{ ...logLevelOption, default: "off" }, ...(source.asksServer === true ? [serverTimeoutOption] : [])];
  const make = (command: InspectCommand, path = ""): Command =>
    makeInspectCommand(command, options, `kpng ${source.name} ${path}${command.name}`, withTransport, signal);
  // This watcher has no subscribers, but a recording has those of the recorded one.
  const recorded = source.name === "replay" ? [subscribersCommand] : [];
  const get = [servicesCommand, endpointsCommand, nodesCommand, ...recorded, changesCommand, viewCommand];
  return [
    makeGroup(
      "get",
      get.map((command) => make(command, "get ")),
    ),
    makeGroup(
      "describe",
      [describeServiceCommand, describeEndpointCommand].map((command) => make(command, "describe ")),
    ),
    make(explainCommand),
    make(makeAnalyze(false)),
  ];
}

const serverTimeoutOption: OptionSpec = {
  ...watcherTimeoutOption,
  description: "maximum time until the server has listed everything (0: no limit)",
};

/**
 * Waits for the first snapshot of a source; returns false if `signal` aborts first. `limitMs` 0 is no limit.
 *
 * Errors: REQUEST_FAILED after `limitMs`, with what the source waits for.
 */
async function hasState(store: Store, health: Health, limitMs: number, signal: AbortSignal): Promise<boolean> {
  const timeout = new AbortController();
  const timer = limitMs === 0 ? undefined : setTimeout(() => timeout.abort(), limitMs);
  const hideProgress = showProgress(() => `waiting for ${health.waitingReasons("source/").join("; ") || "the source"}`);
  const snapshot = await store.next(0, AbortSignal.any([signal, timeout.signal])).finally(hideProgress);
  clearTimeout(timer);
  if (snapshot !== undefined) return true;
  if (signal.aborted) return false;
  const reasons = health.waitingReasons("source/");
  const why = reasons.length === 0 ? "nothing received yet" : reasons.join("; ");
  throw new ProcessError(
    "REQUEST_FAILED",
    `no complete cluster state within ${limitMs} ms (--watcher-timeout): ${why}`,
  );
}
