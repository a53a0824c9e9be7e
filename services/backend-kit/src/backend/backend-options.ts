import {
  logLevelOption,
  nodeNameOption,
  type OptionSpec,
  parseDurationMs,
  parseProxyName,
  parseWholeNumber,
  statusServerOptions,
} from "@kpng/process/options.ts";
import { tlsOptions } from "@kpng/process/tls-files.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";
import type { BackendContext } from "./backend-command.ts";

const standardApi = "127.0.0.1:12090";

/** Options of the connection to the watcher, for programs that reach it over the network. */
export const connectionOptions: readonly OptionSpec[] = [
  {
    flags: "--api <address>",
    description:
      "the watcher: host:port, http://host:port, https://host:port or unix:///path; several with commas or repeated",
    default: standardApi,
    // Repeated flags are joined with commas, the form that the environment variable has.
    parse: (text, previous) => (previous === standardApi || previous === undefined ? text : `${previous},${text}`),
  },
  {
    flags: "--max-msg-size <bytes>",
    description: "longest single message that is accepted",
    default: 64 * 1024 * 1024,
    parse: parseWholeNumber("--max-msg-size", 1, 0xffff_ffff),
  },
];

/**
 * Limit of the wait for a first view. A command that ends by itself must fail if no watcher answers in time; a backend
 * that keeps running waits without a limit.
 */
export const watcherTimeoutOption: OptionSpec = {
  flags: "--watcher-timeout <duration>",
  description: "with --once, and whatever else ends by itself: how long to wait for a first view; 0 for ever",
  default: 30_000,
  parse: parseDurationMs,
};

/** Options of every backend, in a process of its own or in that of the watcher. */
export const followOptions: readonly OptionSpec[] = [
  nodeNameOption,
  {
    flags: "--service-proxy-name <name>",
    description: "only Services whose label service.kubernetes.io/service-proxy-name has this value",
    default: "",
    parse: parseProxyName,
  },
  {
    flags: "--error-delay <duration>",
    description:
      "first delay after a lost stream or a failed sync; it doubles up to 30s, or 1s for a unix socket without a listener",
    default: 1_000,
    parse: parseDurationMs,
  },
  { flags: "--once", description: "end after the first sync that succeeds" },
  watcherTimeoutOption,
  {
    flags: "--inspect-socket <path>",
    description:
      "answer questions about this backend there (kpng.inspect.v1.BackendInspectService; default: not at all)",
  },
];

/** All options that backends with a process of their own have in common; `prepareBackend` reads them. */
export const backendOptions: readonly OptionSpec[] = [
  ...connectionOptions,
  ...tlsOptions("", "the connection to the watcher"),
  ...followOptions,
  ...statusServerOptions,
  logLevelOption,
];

/** Reads {@link followOptions} and `--max-msg-size`. */
export function readFollowOptions(
  options: ParsedOptions,
): Pick<
  BackendContext,
  "nodeName" | "serviceProxyName" | "maxMessageBytes" | "errorDelayMs" | "isOnce" | "firstViewLimitMs" | "inspectSocket"
> {
  return {
    nodeName: String(options.nodeName),
    serviceProxyName: String(options.serviceProxyName),
    maxMessageBytes: Number(options.maxMsgSize),
    errorDelayMs: Number(options.errorDelay),
    isOnce: options.once === true,
    firstViewLimitMs: Number(options.watcherTimeout),
    inspectSocket: typeof options.inspectSocket === "string" ? options.inspectSocket : undefined,
  };
}
