import { type OptionSpec, parseDurationMs, repeatableSome } from "@kpng/process/options.ts";
import { looseOldGeneration } from "@kpng/process/run/v8-heap.ts";
import { readServerTls, tlsOptions } from "@kpng/process/tls-files.ts";
import { inspection } from "@kpng/watcher/inspect/inspection.ts";
import { serveTask } from "@kpng/watcher/stream/serve/serve.ts";
import { InvalidArgumentError } from "commander";
import { readProxyNames } from "./proxy-names.ts";
import { routesOptions } from "./routes-options.ts";
import type { SinkCommand } from "./sink-command.ts";

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

/** `kpng SOURCE to-api`. */
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
    const routes = routesOptions(readProxyNames(options), store, context);
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

function parseBoolean(text: string): boolean {
  if (text !== "true" && text !== "false") throw new InvalidArgumentError("write true or false");
  return text === "true";
}
