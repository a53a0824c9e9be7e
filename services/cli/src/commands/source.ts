import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { statusServerTasks } from "@kpng/process/health/status-server.ts";
import { addOptions, logLevelOption, statusServerOptions } from "@kpng/process/options.ts";
import { answersByExitCode } from "@kpng/process/run/exit-code.ts";
import { runWithMain } from "@kpng/process/run/run-tasks.ts";
import { filterProxyNames } from "@kpng/watcher/source/filter-proxy-names.ts";
import { observeCurrency } from "@kpng/watcher/store/observe-currency.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { observeStore } from "@kpng/watcher/store/store-metrics.ts";
import { traceRevisions } from "@kpng/watcher/trace/traces.ts";
import { Command } from "commander";
import { type Options, withContext } from "../context/command-context.ts";
import type { SinkCommand } from "../sink/sink-command.ts";
import { toApi } from "../sink/to-api.ts";
import { toExternal } from "../sink/to-external.ts";
import { toFile } from "../sink/to-file.ts";
import { toLocal } from "../sink/to-local.ts";
import { proxyNameOption, readProxyNames } from "../source/proxy-names.ts";
import type { SourceCommand } from "../source/source-command.ts";
import { addExternalBackends } from "./external-backends.ts";
import { makeInspectSource } from "./inspect-source.ts";

/**
 * `kpng SOURCE to-api|to-file|to-local|get|explain …`: options of the source are accepted before and after the sink.
 * SOURCE is where the cluster's objects come from: kube, file, api or replay. The command after it serves, writes,
 * applies or queries them.
 *
 * `makeKpng` calls it for each source. Separate from the folders `source/` and `sink/`, each of which has one half of
 * such a command: this file combines them.
 */
export function makeSource(source: SourceCommand, backends: readonly BackendCommand[], signal: AbortSignal): Command {
  const command = addOptions(new Command(source.name), [...source.options, proxyNameOption])
    .description(source.description)
    .addHelpText("after", source.examples);
  for (const sink of [toApi, toFile]) command.addCommand(makeSink(source, sink, [], signal));
  const local = addOptions(new Command("to-local"), [...statusServerOptions, logLevelOption])
    .description("run a backend for one node in this process")
    .addHelpText("after", "\nA program kpng-NAME on the PATH can be run as to-NAME.\n");
  for (const backend of backends) local.addCommand(makeSink(source, toLocal(backend), ["to-local"], signal));
  addExternalBackends(local, (name, args, options) => run(source, toExternal(name, args), options, signal));
  command.addCommand(local);
  for (const one of makeInspectSource(source, signal)) command.addCommand(one);
  return command;
}

function makeSink(source: SourceCommand, sink: SinkCommand, path: readonly string[], signal: AbortSignal): Command {
  const words = ["kpng", source.name, ...path, sink.name].join(" ");
  const command = addOptions(new Command(sink.name).aliases([...(sink.aliases ?? [])]), [
    ...sink.options,
    ...statusServerOptions,
    logLevelOption,
  ])
    .description(sink.description)
    .addHelpText("after", sink.examples.replaceAll("COMMAND", words))
    .action((_options: Options, self: Command) => run(source, sink, self.optsWithGlobals(), signal));
  return sink.isQuestion === undefined ? command : answersByExitCode(command, sink.isQuestion);
}

function run(source: SourceCommand, sink: SinkCommand, options: Options, signal: AbortSignal): Promise<void> {
  return withContext(options, "kpng-watcher", async (context) => {
    const { tracing, health, metrics } = context;
    const store = new Store({ trace: tracing && traceRevisions(tracing) });
    observeStore(store, metrics);
    observeCurrency(store, context);
    // Both are made before either runs, so that an invalid option has no effect.
    const { connect } = source;
    const main = sink.make(options, store, { ...context, connect: connect && (() => connect(options)) });
    const sourceSink = filterProxyNames(store, readProxyNames(options));
    const beside = [
      source.make(options, sourceSink, context),
      ...statusServerTasks(options, health, metrics, context.log),
    ];
    await runWithMain(main, beside, signal);
  });
}
