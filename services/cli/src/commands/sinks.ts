import { createRouterTransport } from "@connectrpc/connect";
import type { BackendCommand } from "@kpng/backend-kit/backend-command.ts";
import { followOptions, readFollowOptions } from "@kpng/backend-kit/backend-options.ts";
import {
  type OptionSpec,
  parseDurationMs,
  parseProxyName,
  parseSomeText,
  repeatable,
  repeatableSome,
} from "@kpng/process/options.ts";
import type { Task } from "@kpng/process/task.ts";
import { readServerTls, tlsOptions } from "@kpng/process/tls-files.ts";
import { looseOldGeneration } from "@kpng/process/v8-heap.ts";
import { inspection } from "@kpng/watcher/inspect/inspection.ts";
import { stateFileSink } from "@kpng/watcher/state-file/state-file-sink.ts";
import type { Store } from "@kpng/watcher/store/store.ts";
import { makeRoutes, type RoutesOptions } from "@kpng/watcher/stream/serve/routes.ts";
import { serveTask } from "@kpng/watcher/stream/serve/serve.ts";
import { observeConvergence } from "@kpng/watcher/stream/session/convergence.ts";
import { proxyNamesOf } from "@kpng/watcher/stream/session/requests.ts";
import { Subscribers } from "@kpng/watcher/stream/session/subscribers.ts";
import { TraceSends } from "@kpng/watcher/trace/trace-sends.ts";
import { InvalidArgumentError } from "commander";
import type { CommandContext, Options } from "./context.ts";

/** A command that says what becomes of the cluster state: `kpng … to-NAME`. */
export interface SinkCommand {
  readonly name: string;
  readonly description: string;
  readonly options: readonly OptionSpec[];
  readonly examples: string;
  /** See BackendCommand. */
  readonly isQuestion?: ((options: Options) => boolean) | undefined;
  make(options: Options, store: Store, context: CommandContext): Task;
}

/** Which Services: an option of the source, as in KPNG, because every sink that serves nodes obeys it. */
export const proxyNameOption: OptionSpec = (() => {
  const spec = repeatable(
    "--service-proxy-name <name>",
    "serve only Services with this value of the label service.kubernetes.io/service-proxy-name, the first to subscribers " +
      "that name none (default: Services without the label, and any other to who asks for it)",
  );
  const parse = (text: string, previous: unknown): unknown => {
    text.split(",").forEach(parseProxyName);
    return spec.parse?.(text, previous);
  };
  return { ...spec, parse };
})();

function proxyNames(options: Options): readonly string[] {
  return options.serviceProxyName as readonly string[];
}

export function routesOptions(proxyNames: readonly string[], store: Store, context: CommandContext): RoutesOptions {
  const subscribers = new Subscribers(context.metrics);
  observeConvergence(store, subscribers, context.metrics);
  if (context.tracing !== undefined) subscribers.observe(new TraceSends(store, context.tracing));
  return {
    store,
    health: context.health,
    subscribers,
    proxyNames: proxyNamesOf(proxyNames),
  };
}

const connectionOptions: readonly OptionSpec[] = [
  {
    flags: "--max-start-wait <duration>",
    description: "how long a stream may wait for its first batch; more streams are told to come again (0: no limit)",
    parse: parseDurationMs,
    default: 10_000,
  },
  {
    flags: "--max-connection-age <duration>",
    description: "when a client is asked to open a new connection, so that nodes spread over replicas (0: never)",
    parse: parseDurationMs,
    default: 1_800_000,
  },
  {
    flags: "--drain-time <duration>",
    description: "over what time clients are sent elsewhere when the watcher is told to end (0: at once)",
    parse: parseDurationMs,
    default: 10_000,
  },
];

const defaultListen = ["tcp://127.0.0.1:12090"];

export const toApi: SinkCommand = {
  name: "to-api",
  description: "serve it to nodes, relays and people, over gRPC, gRPC-Web and Connect on one port",
  options: [
    repeatableSome("--listen <address>", "tcp://host:port, tcp4://…, tcp6://… or unix:///path", defaultListen),
    ...tlsOptions("listen-", "the listeners"),
    {
      flags: "--globalv1-api [boolean]",
      description: "serve the whole cluster state",
      parse: parseBoolean,
      default: true,
    },
    { flags: "--local-api [boolean]", description: "serve the views of nodes", parse: parseBoolean, default: true },
    {
      flags: "--inspect-api [boolean]",
      description: "answer what the watcher holds, and how far each node is (kpng get, explain, trace, top)",
      parse: parseBoolean,
      default: true,
    },
    ...connectionOptions,
  ],
  examples: `
Examples:
  # for nodes anywhere, with client certificates
  COMMAND --listen tcp://:12090 --listen-tls-key tls.key --listen-tls-crt tls.crt --listen-tls-ca ca.crt

  # on this machine only, twice
  COMMAND --listen tcp://127.0.0.1:12090 --listen unix:///run/kpng.sock

  # then look at it
  kpng get nodes
  grpcurl -plaintext -d '{"NodeName":"n1"}' 127.0.0.1:12090 localv1.Sets/Watch
`,
  make: (options, store, context) => {
    looseOldGeneration();
    const { listenTlsKey: key, listenTlsCrt: crt, listenTlsCa: ca } = options as Record<string, string | undefined>;
    const routes = routesOptions(proxyNames(options), store, context);
    return serveTask({
      ...routes,
      moreServices: options.inspectApi === true ? [inspection(routes)] : [],
      listen: options.listen as readonly string[],
      tls: readServerTls("listen-", { key, crt, ca }),
      hasGlobalApi: options.globalv1Api as boolean,
      hasLocalApi: options.localApi as boolean,
      maxStartWaitMs: options.maxStartWait as number,
      maxAgeMs: options.maxConnectionAge as number,
      drainMs: options.drainTime as number,
      registry: context.metrics,
      log: context.log,
    });
  },
};

export const toFile: SinkCommand = {
  name: "to-file",
  description: "write it to a file, in KPNG's format, whenever it changes",
  options: [
    { flags: "-o, --output <file>", description: "where to write", default: "global-state.yaml", parse: parseSomeText },
  ],
  examples: `
Examples:
  COMMAND -o global-state.yaml
`,
  make: (options, store, context) => stateFileSink({ store, path: options.output as string, ...context }),
};

/** Runs a backend in this process, on the same streams as over the network but without one. */
export function toLocal(backend: BackendCommand): SinkCommand {
  return {
    name: `to-${backend.name}`,
    description: backend.description,
    examples: backend.examples,
    isQuestion: backend.isQuestion,
    // The source's option of that name says it already.
    options: [...backend.options, ...followOptions.filter(({ flags }) => !flags.startsWith("--service-proxy-name"))],
    make: (options, store, context) => {
      const names = proxyNames(options);
      const follow = readFollowOptions({ ...options, serviceProxyName: names[0] ?? "" });
      const stop = new AbortController();
      const routes = makeRoutes({ ...routesOptions(names, store, context) }, stop.signal);
      const task = backend.makeTask(options, { ...context, ...follow, transport: createRouterTransport(routes) });
      return { name: task.name, run: (signal) => task.run(signal).finally(() => stop.abort()) };
    },
  };
}

function parseBoolean(text: string): boolean {
  if (text !== "true" && text !== "false") throw new InvalidArgumentError("write true or false");
  return text === "true";
}
