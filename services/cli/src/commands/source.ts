import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { watcherTimeoutOption } from "@kpng/backend-kit/backend/backend-options.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type AnswerPage, statusServerTasks } from "@kpng/process/health/status-server.ts";
import { addOptions, logLevelOption, type OptionSpec, statusServerOptions } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { Task } from "@kpng/process/task.ts";
import { runWithMain } from "@kpng/process/task.ts";
import { filterProxyNames } from "@kpng/source/source.ts";
import { inspection } from "@kpng/watcher/inspect/inspection.ts";
import { observeCurrency } from "@kpng/watcher/store/currency.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { observeStore } from "@kpng/watcher/store/store-metrics.ts";
import { localTransport } from "@kpng/watcher/stream/serve/serve.ts";
import { traceRevisions } from "@kpng/watcher/trace/traces.ts";
import { Command } from "commander";
import { type Options, withContext } from "../context/command-context.ts";
import { changesCommand } from "../inspect/changes.ts";
import { type InspectCommand, withRequestErrors } from "../inspect/client.ts";
import { endpointsCommand, viewCommand } from "../inspect/endpoints.ts";
import { explainCommand } from "../inspect/explain.ts";
import { analyzeCommand } from "../inspect/findings.ts";
import { nodesCommand } from "../inspect/nodes.ts";
import { describeServiceCommand, servicesCommand } from "../inspect/services.ts";
import { makeRunCommand, type SinkCommand } from "../sink/sink-command.ts";
import { routesOptions, toFile, toLocal } from "../sink/sinks.ts";
import { toApi } from "../sink/to-api.ts";
import { proxyNameOption, readProxyNames, type SourceCommand } from "../source/source-command.ts";
import { makeGroup, makeInspectCommand, type WithReplicas } from "./inspect.ts";

/**
 * `kpng SOURCE to-api|to-file|to-local|get|explain …`, where SOURCE is kube, file, api, replay or simulate. The source's
 * options are accepted before and after the command that follows.
 */
export function makeSource(source: SourceCommand, backends: readonly BackendCommand[], signal: AbortSignal): Command {
  const command = addOptions(new Command(source.name), [...source.options, proxyNameOption]).addHelpText(
    "after",
    source.examples,
  );
  const makeSink = (sink: SinkCommand, path = ""): Command =>
    makeRunCommand(sink, `kpng ${source.name}${path}`, (options) => run(source, sink, options, signal));
  for (const sink of [toApi, toFile]) command.addCommand(makeSink(sink));
  const local = addOptions(new Command("to-local"), [...statusServerOptions, logLevelOption]).description(
    "run a backend for one node in this process",
  );
  for (const backend of backends) local.addCommand(makeSink(toLocal(backend), " to-local"));
  command.addCommand(local);
  for (const one of makeInspectSource(source, signal)) command.addCommand(one);
  for (const one of source.more?.(signal) ?? []) command.addCommand(one);
  return command;
}

function run(source: SourceCommand, sink: SinkCommand, options: Options, signal: AbortSignal): Promise<void> {
  return withContext(options, async (context) => {
    const { tracing, health, metrics } = context;
    const store = new Store({ trace: tracing && traceRevisions(tracing) });
    observeStore(store, metrics);
    observeCurrency(store, context);
    // Make both before either runs, so that nothing happens if an option is invalid.
    const { connect } = source;
    let pages: AnswerPage | undefined;
    const main = sink.make(options, store, {
      ...context,
      connect: connect && (() => connect(options)),
      addPages: (added) => {
        pages = added;
      },
    });
    const sourceSink = filterProxyNames(store, readProxyNames(options));
    const companionTasks = [
      source.make(options, sourceSink, context),
      ...statusServerTasks(options, { health, metrics, pages }),
    ];
    await runWithMain(main, companionTasks, signal);
  });
}

/** `kpng SOURCE get|describe|explain|analyze`: queries a watcher in this process about the source's objects. */
function makeInspectSource(source: SourceCommand, signal: AbortSignal): readonly Command[] {
  const withReplicas: WithReplicas = (options, work) =>
    withContext(options, async (context) => {
      const store = new Store();
      const sink = filterProxyNames(store, readProxyNames(options));
      const routes = routesOptions(readProxyNames(options), store, context);
      const stop = new AbortController();
      const { log } = context;
      const transport = localTransport(
        { ...routes, log, moreServices: [inspection({ ...routes, health: context.health, hasNodes: false })] },
        stop.signal,
      );
      const main: Task = {
        name: "inspect",
        run: async (ended) => {
          const limitMs = source.asksServer === true ? Number(options.watcherTimeout) : 0;
          if (!(await hasState(store, context.health, limitMs, ended))) return;
          await withRequestErrors(server, ended, () => work([{ api: server, transport }]));
        },
      };
      try {
        await runWithMain(main, [source.make({ ...options, isQuery: true }, sink, context)], signal);
      } finally {
        stop.abort();
      }
    });
  const server = "watcher in this process";
  const options = [{ ...logLevelOption, default: "off" }, ...(source.asksServer === true ? [serverTimeoutOption] : [])];
  const make = (command: InspectCommand, path = ""): Command =>
    makeInspectCommand(command, options, `kpng ${source.name} ${path}${command.name}`, withReplicas, signal);
  return [
    makeGroup("get", [servicesCommand, endpointsCommand, nodesCommand, changesCommand, viewCommand], make),
    makeGroup("describe", [describeServiceCommand], make),
    make(explainCommand),
    make(analyzeCommand),
  ];
}

const serverTimeoutOption: OptionSpec = {
  ...watcherTimeoutOption,
  description: "maximum time until the server has listed everything (0: no limit)",
};

/**
 * Waits for the first snapshot from a source; returns false if `signal` aborts first. `limitMs` 0 means no limit.
 *
 * Errors: REQUEST_FAILED at the source's first failure, or after `limitMs`; the message then says what the source waits
 * for.
 */
async function hasState(store: Store, health: Health, limitMs: number, signal: AbortSignal): Promise<boolean> {
  const stop = new AbortController();
  const timer = limitMs === 0 ? undefined : setTimeout(() => stop.abort(), limitMs);
  health.onChange(() => !health.isHealthy && stop.abort(), stop.signal);
  const snapshot = await store.next(0, AbortSignal.any([signal, stop.signal]));
  clearTimeout(timer);
  if (snapshot !== undefined) return true;
  if (signal.aborted) return false;
  // After a failure, leave out the parts that are merely waiting; the wording must match that of the sources, e.g.
  // kind-report.ts.
  const reasons = health
    .waitingReasons("source/")
    .filter((reason) => health.isHealthy || !reason.includes("waiting for"));
  const why = reasons.length === 0 ? "nothing received yet" : reasons.join("; ");
  const limit = health.isHealthy ? ` within ${limitMs} ms (--watcher-timeout)` : "";
  throw new ProcessError("REQUEST_FAILED", `no complete cluster state${limit}: ${why}`);
}
