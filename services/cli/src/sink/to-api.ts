import { readServerTls, tlsOptions } from "@kpng/process/credential-files.ts";
import {
  type OptionSpec,
  oneOf,
  parseDurationMs,
  parseWholeNumber,
  repeatable,
  repeatableNonEmpty,
  textOption,
} from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { growOldGenerationByHalf } from "@kpng/process/run/memory.ts";
import { makeReviewCounter, TokenChecker } from "@kpng/watcher/identity/token-checker.ts";
import { kubeReviews } from "@kpng/watcher/identity/token-review.ts";
import { inspection } from "@kpng/watcher/inspect/inspection.ts";
import { statusPage } from "@kpng/watcher/page/status-page.ts";
import { serveTask } from "@kpng/watcher/stream/serve/serve.ts";
import { InvalidArgumentError } from "commander";
import packageJson from "../../package.json" with { type: "json" };
import type { Options } from "../context/command-context.ts";
import { readProxyNames } from "../source/source-command.ts";
import type { SinkCommand, SinkContext } from "./sink-command.ts";
import { routesOptions } from "./sinks.ts";

/** Options of `to-api` for clients that prove their identity with ServiceAccount tokens. */
const tokenOptions: readonly OptionSpec[] = [
  textOption(
    "--token-audience <name>",
    "accept ServiceAccount tokens with this audience, over TLS; client certificates are then optional " +
      "(default: no tokens)",
  ),
  accountsOption("node", "may read the view of the node in their token", ["kube-system/kpng-node"]),
  accountsOption("state", "may read the whole state, for relays", ["kube-system/kpng-relay"]),
  accountsOption("inspection", "may use the whole inspect API", []),
];

function accountsOption(name: string, right: string, standard: readonly string[]): OptionSpec {
  return repeatable(`--${name}-accounts <namespace/name>`, `ServiceAccounts that ${right}`, standard, (text) => {
    const invalid = text.split(",").find((account) => !/^([a-z0-9.-]+\/[a-z0-9.-]+)?$/.test(account));
    if (invalid !== undefined) throw new InvalidArgumentError(`"${invalid}" is not an account: write namespace/name`);
  });
}

const connectionOptions: readonly OptionSpec[] = [
  {
    flags: "--max-connection-age <duration>",
    isExpert: true,
    description: "age at which a client is asked to reconnect, so that nodes spread over replicas (0: never)",
    parse: parseDurationMs,
    default: 1_800_000,
  },
  {
    flags: "--drain-time <duration>",
    isExpert: true,
    description: "time over which clients are asked to reconnect elsewhere when the watcher stops (0: at once)",
    parse: parseDurationMs,
    default: 10_000,
  },
  {
    flags: "--max-connections <count>",
    isExpert: true,
    description: "maximum number of connections over TCP, fewer than open files (0: half of the memory limit)",
    parse: parseWholeNumber("--max-connections", 0, 1_000_000),
    default: 0,
  },
];

const defaultListen = ["tcp://127.0.0.1:12090"];

/** `kpng SOURCE to-api`: serves the cluster state to nodes, relays and people. */
export const toApi: SinkCommand = {
  name: "to-api",
  description: "serve the state to nodes, relays and people, over gRPC and Connect on one port",
  options: [
    repeatableNonEmpty(
      "--listen <address>",
      "address to listen on: host:port, tcp4://…, tcp6://… or unix:///path",
      defaultListen,
    ),
    ...tlsOptions("listen-", "the listeners"),
    booleanOption("--globalv1-api", true, "serve the whole cluster state"),
    booleanOption("--local-api", true, "serve the views of nodes"),
    booleanOption(
      "--inspect-api",
      true,
      "serve the inspect API (kpng get, explain, trace, top, record), and the status page at --healthz-bind-address",
    ),
    booleanOption(
      "--allow-anonymous",
      false,
      "give every right to clients over TCP that prove no identity by a certificate or token",
    ),
    booleanOption(
      "--trust-loopback",
      true,
      "give every right to clients over loopback: the processes and host-network pods of this machine",
    ),
    ...tokenOptions,
    ...connectionOptions,
  ],
  examples: `
Examples:
  # for nodes anywhere, with client certificates
  COMMAND --listen tcp://:12090 --listen-tls-key tls.key --listen-tls-crt tls.crt --listen-tls-ca ca.crt

  # for nodes anywhere, with the tokens of their pods
  COMMAND --listen tcp://:12090 --listen-tls-key tls.key --listen-tls-crt tls.crt --token-audience kpng

  # on this machine only, on two addresses
  COMMAND --listen tcp://127.0.0.1:12090 --listen unix:///run/kpng.sock

  # then query it
  kpng get nodes
  grpcurl -plaintext -d '{"NodeName":"n1"}' 127.0.0.1:12090 localv1.Sets/Watch
`,
  make: (options, store, context) => {
    // A watcher that serves nodes has a large heap of long-lived state.
    growOldGenerationByHalf();
    const { listenTlsKey: key, listenTlsCrt: crt, listenTlsCa: ca } = options as Record<string, string | undefined>;
    const tokens = makeTokenChecker(options, context);
    const routes = routesOptions(readProxyNames(options), store, context);
    const { health, metrics: registry, log } = context;
    const { version } = packageJson;
    const api = options.inspectApi === true ? inspection({ ...routes, health, registry, version }) : undefined;
    const trust = {
      allowsAnonymous: options.allowAnonymous as boolean,
      trustsLoopback: options.trustLoopback as boolean,
    };
    if (api !== undefined) context.addPages?.(statusPage({ api, trust, tokens, log }));
    return serveTask({
      ...routes,
      moreServices: api === undefined ? [] : [api],
      listen: options.listen as readonly string[],
      tls: readServerTls("listen-", { key, crt, ca }, tokens !== undefined),
      tokens,
      hasGlobalApi: options.globalv1Api as boolean,
      hasLocalApi: options.localApi as boolean,
      maxAgeMs: options.maxConnectionAge as number,
      drainMs: options.drainTime as number,
      maxConnections: options.maxConnections as number,
      ...trust,
      registry,
      log,
    });
  },
};

/** Returns an option that also accepts `--NAME false`. */
function booleanOption(name: string, standard: boolean, description: string): OptionSpec {
  const parse = (text: string): boolean => oneOf(["true", "false"])(text) === "true";
  return { flags: `${name} [boolean]`, description, default: standard, parse };
}

/**
 * Returns the token checker that the values of {@link tokenOptions} describe; undefined without --token-audience.
 *
 * Errors: BAD_OPTION.
 */
function makeTokenChecker(
  options: Options,
  { connect, log, metrics: registry }: SinkContext,
): TokenChecker | undefined {
  // Register the counter even without tokens, so that dashboards find the series.
  const reviews = makeReviewCounter(registry);
  const audience = options.tokenAudience as string | undefined;
  if (audience === undefined) return undefined;
  if (options.listenTlsKey === undefined || options.listenTlsCrt === undefined) {
    throw badOption("--token-audience needs --listen-tls-key and --listen-tls-crt: tokens are accepted over TLS only");
  }
  if (connect === undefined) throw badOption("--token-audience needs an API server: kpng kube, or kpng api");
  return new TokenChecker({
    review: kubeReviews(connect, audience),
    audience,
    accounts: {
      node: new Set(options.nodeAccounts as readonly string[]),
      state: new Set(options.stateAccounts as readonly string[]),
      inspection: new Set(options.inspectionAccounts as readonly string[]),
    },
    log,
    reviews,
  });
}

function badOption(message: string): ProcessError {
  return new ProcessError("BAD_OPTION", message);
}
