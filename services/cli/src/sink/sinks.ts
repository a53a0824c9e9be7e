import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { followOptions, readFollowOptions } from "@kpng/backend-kit/backend/backend-options.ts";
import { textOption } from "@kpng/process/options.ts";
import { stateFileSink } from "@kpng/watcher/state-file/state-file-sink.ts";
import type { Store } from "@kpng/watcher/store/store.ts";
import type { RoutesOptions } from "@kpng/watcher/stream/serve/routes.ts";
import { localTransport } from "@kpng/watcher/stream/serve/serve.ts";
import { proxyNamesOf } from "@kpng/watcher/stream/session/requests.ts";
import { Subscribers } from "@kpng/watcher/stream/session/subscribers.ts";
import { TraceSends } from "@kpng/watcher/trace/traces.ts";
import type { CommandContext } from "../context/command-context.ts";
import { readProxyNames } from "../source/source-command.ts";
import { type SinkCommand, toName } from "./sink-command.ts";

/** Returns the options for a watcher's routes, including its subscribers, their metrics and their traces. */
export function routesOptions(proxyNames: readonly string[], store: Store, context: CommandContext): RoutesOptions {
  const subscribers = new Subscribers(store, context.metrics);
  if (context.tracing !== undefined) subscribers.observe(new TraceSends(store, context.tracing));
  return { health: context.health, subscribers, proxyNames: proxyNamesOf(proxyNames) };
}

export const toFile: SinkCommand = {
  name: "to-file",
  description: "write the state to a file in KPNG's format, whenever it changes",
  options: [
    textOption(
      "-o, --output <file>",
      "file to write, as JSON if its name ends in .json; - writes the state to standard output, once",
      "global-state.yaml",
    ),
    { flags: "--once", description: "exit when the first complete state is written" },
  ],
  examples: `
Examples:
  COMMAND -o global-state.yaml
  COMMAND -o - | gzip > state.yaml.gz
`,
  make: (options, store, context) =>
    stateFileSink({ store, path: options.output as string, isOnce: options.once === true, ...context }),
};

/**
 * Returns the sink `kpng SOURCE to-local to-NAME` for a backend that is built into `kpng`. It runs the backend in this
 * process, where the backend gets the same messages as over the network.
 */
export function toLocal(backend: BackendCommand): SinkCommand {
  return {
    ...toName(backend),
    // The source already has the option --service-proxy-name.
    options: [...backend.options, ...followOptions.filter(({ flags }) => !flags.startsWith("--service-proxy-name"))],
    make: (options, store, context) => {
      const names = readProxyNames(options);
      // The view needs no limit, because this process holds the same data anyway.
      const maxViewBytes = Number.POSITIVE_INFINITY;
      const follow = { ...readFollowOptions({ ...options, serviceProxyName: names[0] ?? "" }), maxViewBytes };
      const stop = new AbortController();
      const transport = localTransport({ ...routesOptions(names, store, context), log: context.log }, stop.signal);
      const task = backend.makeTask(options, { ...context, ...follow, transport });
      return { name: task.name, run: (signal) => task.run(signal).finally(() => stop.abort()) };
    },
  };
}
