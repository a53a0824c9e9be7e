import { clientOptions } from "@kpng/process/credential-files.ts";
import {
  logLevelOption,
  nodeNameOption,
  type OptionSpec,
  parseDurationMs,
  parseProxyName,
  parseWholeNumber,
  statusServerOptions,
} from "@kpng/process/options.ts";
import { memoryLimitBytes } from "@kpng/process/run/memory.ts";
import { defaultMessageBytes } from "../state/item-limits.ts";
import { type ParsedOptions, textOption } from "../types/parsed-options.ts";

const standardApi = "127.0.0.1:12090";

export const maxMessageOption: OptionSpec = {
  flags: "--max-msg-size <bytes>",
  isExpert: true,
  description:
    "maximum size of a message from the watcher (default: 64 MiB, at most a 128th of the memory limit, at least 2 MiB)",
  // A smaller number was most likely meant as mebibytes.
  parse: parseWholeNumber("the number of bytes", 1_048_576, 0xffff_ffff),
};

/**
 * Options for the connection to the watcher, for programs that connect to it over the network: `kpng-NAME` has them
 * through {@link backendOptions}, `kpng local` directly. `kpng … to-local` has a watcher in its own process and needs
 * only `followOptions`.
 */
export const connectionOptions: readonly OptionSpec[] = [
  {
    flags: "--api <address>",
    description:
      "watcher: host:port, http://host:port, https://host:port or unix:///path; several separated by commas or repeated",
    default: standardApi,
    // Repeated flags are joined with commas, as in the environment variable.
    parse: (text, previous) => (previous === standardApi || previous === undefined ? text : `${previous},${text}`),
  },
  maxMessageOption,
];

/** A command that ends by itself must fail if no watcher answers in time; other backends wait without a limit. */
export const watcherTimeoutOption: OptionSpec = {
  flags: "--watcher-timeout <duration>",
  isExpert: true,
  description:
    "with --once, --diff and other runs that end by themselves: maximum wait for a first view, and then for a sync that succeeds; 0 for no limit",
  default: 30_000,
  parse: parseDurationMs,
};

/** Options of every backend, whether it runs in its own process or in the watcher's. */
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
    isExpert: true,
    description: "delay after a lost stream or a failed sync; doubles up to 30s, or up to 3s while no watcher listens",
    default: 1_000,
    parse: parseDurationMs,
  },
  {
    flags: "--accept-older-after <duration>",
    isExpert: true,
    description: "how long to refuse states that are older than the last one, if no watcher offers a newer one",
    default: 60_000,
    parse: parseDurationMs,
  },
  { flags: "--once", description: "exit after the first successful sync" },
  watcherTimeoutOption,
  {
    flags: "--inspect-socket <path>",
    description:
      "unix socket on which to serve inspection of this backend (kpng.inspect.v1.BackendInspectService; default: none)",
  },
];

export const backendOptions: readonly OptionSpec[] = [
  ...connectionOptions,
  ...clientOptions("the connection to the watcher"),
  ...followOptions,
  ...statusServerOptions,
  logLevelOption,
];

/** Parses {@link followOptions} and the limits among {@link connectionOptions}. */
export function readFollowOptions(options: ParsedOptions) {
  return {
    nodeName: String(options.nodeName),
    serviceProxyName: String(options.serviceProxyName),
    maxMessageBytes: Number(options.maxMsgSize ?? defaultMessageBytes(memoryLimitBytes())),
    errorDelayMs: Number(options.errorDelay),
    acceptOlderAfterMs: Number(options.acceptOlderAfter),
    isOnce: options.once === true,
    firstViewLimitMs: Number(options.watcherTimeout),
    inspectSocket: textOption(options, "inspectSocket"),
  };
}
