import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { followOptions, readFollowOptions } from "@kpng/backend-kit/backend/backend-options.ts";
import type { AnswerPage } from "@kpng/process/health/status-server.ts";
import { type OptionSpec, parseNonEmptyText } from "@kpng/process/options.ts";
import type { Task } from "@kpng/process/task.ts";
import type { KubeConnection } from "@kpng/source/kube/connection.ts";
import { stateFileSink } from "@kpng/watcher/state-file/state-file-sink.ts";
import type { Store } from "@kpng/watcher/store/store.ts";
import type { RoutesOptions } from "@kpng/watcher/stream/serve/routes.ts";
import { localTransport } from "@kpng/watcher/stream/serve/serve.ts";
import { proxyNamesOf } from "@kpng/watcher/stream/session/requests.ts";
import { Subscribers } from "@kpng/watcher/stream/session/subscribers.ts";
import { TraceSends } from "@kpng/watcher/trace/traces.ts";
import type { CommandContext, Options } from "../context/command-context.ts";
import { readProxyNames } from "../source/source-command.ts";

/**
 * A command that uses the cluster state: `kpng SOURCE … to-NAME`. The sinks are `to-api`, `to-file`, `to-local`, and
 * one for each backend; `makeSource` runs them.
 */
export interface SinkCommand {
  readonly name: string;
  /** Aliases of the command. Default: none. */
  readonly aliases?: readonly string[] | undefined;
  readonly description: string;
  readonly options: readonly OptionSpec[];
  readonly examples: string;
  /** True if the exit status of a run with these options is its result; see `BackendCommand`. */
  readonly exitStatusIsResult?: ((options: Options) => boolean) | undefined;
  make(options: Options, store: Store, context: SinkContext): Task;
}

/** Context of a sink. */
export interface SinkContext extends CommandContext {
  /** Connects to the API server; undefined if the source has no options for that. */
  readonly connect?: (() => Promise<KubeConnection>) | undefined;
  /** Sets the pages of the port for health and metrics, which has effect only if such a port is served. */
  readonly addPages?: ((pages: AnswerPage) => void) | undefined;
}

/** Returns the options for a watcher's routes, including its subscribers, their metrics and their traces. */
export function routesOptions(proxyNames: readonly string[], store: Store, context: CommandContext): RoutesOptions {
  const subscribers = new Subscribers(store, context.metrics);
  if (context.tracing !== undefined) subscribers.observe(new TraceSends(store, context.tracing));
  return {
    health: context.health,
    subscribers,
    proxyNames: proxyNamesOf(proxyNames),
  };
}

/** `kpng SOURCE to-file`: writes the state to a file. */
export const toFile: SinkCommand = {
  name: "to-file",
  description: "write the state to a file in KPNG's format, whenever it changes",
  options: [
    {
      flags: "-o, --output <file>",
      description: "file to write, as JSON if its name ends in .json; - writes the state to standard output, once",
      default: "global-state.yaml",
      parse: parseNonEmptyText,
    },
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
    name: `to-${backend.name}`,
    aliases: backend.aliases?.map((alias) => `to-${alias}`),
    description: backend.description,
    examples: backend.examples,
    exitStatusIsResult: backend.exitStatusIsResult,
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
