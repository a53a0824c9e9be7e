import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import type { OptionSpec } from "@kpng/process/options.ts";
import type { Task } from "@kpng/process/task.ts";
import type { Tracing } from "@kpng/process/trace/tracing.ts";
import type { Registry } from "prom-client";
import type { ProxyHealth } from "../observe/proxy-health.ts";
import type { WatchOptions } from "../receive/watch-requests.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";

/**
 * Parts and settings of the process that a backend runs in. A process of its own (`serveBackend`) or one with a
 * watcher (`kpng … to-local`) creates the context and passes it to `BackendCommand.makeTask`; the backend passes it on
 * to `backendTask`.
 */
export interface BackendContext
  extends Pick<WatchOptions, "transport" | "nodeName" | "maxMessageBytes" | "maxViewBytes"> {
  /**
   * Value that Services must have in the label `service.kubernetes.io/service-proxy-name`; "" for the watcher's
   * default.
   */
  readonly serviceProxyName: string;
  /**
   * Delay after a lost stream or a failed sync, in milliseconds. It doubles up to 30 s, or up to 3 s while no watcher
   * listens.
   */
  readonly errorDelayMs: number;
  /** Ends the backend after the first successful sync. */
  readonly isOnce: boolean;
  /**
   * With `isOnce`: maximum wait for the first view, and maximum time during which syncs may fail, in milliseconds; 0 or
   * undefined for no limit.
   */
  readonly firstViewLimitMs?: number | undefined;
  /** How long a state older than the current one is refused, in milliseconds. Default 60 000. */
  readonly acceptOlderAfterMs?: number | undefined;
  /** Name of the watcher in error messages, e.g. its address. Default: "the watcher of this process". */
  readonly watcher?: string | undefined;
  /** Path of the unix socket through which `kpng get backend` queries this backend (`--inspect-socket`). */
  readonly inspectSocket?: string | undefined;
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  readonly tracing?: Tracing | undefined;
  /** Health in kube-proxy's terms, for a service proxy whose process serves health probes. `backendTask` updates it. */
  readonly proxyHealth?: ProxyHealth | undefined;
}

/** A backend in the form of a command: `kpng-NAME`, `kpng local to-NAME`, and `kpng file … to-local to-NAME`. */
export interface BackendCommand {
  /** Lower-case letters, digits and dashes, e.g. "json". */
  readonly name: string;
  /** KPNG's names for the backend, where they differ, e.g. "userspacelin" for `to-userspacelin`. Default: none. */
  readonly aliases?: readonly string[] | undefined;
  readonly description: string;
  readonly options: readonly OptionSpec[];
  /** Shown below the options in help; `COMMAND` stands for the words that start the backend. */
  readonly examples: string;
  /** For a service proxy: kube-proxy's name for the mode, which `/proxyMode` returns, e.g. "iptables". */
  readonly proxyMode?: string | undefined;
  /**
   * Returns the port on 127.0.0.1 for health, if a run with these options serves and `--healthz-bind-address` is not
   * given. Default: none.
   */
  readonly healthPort?: ((options: ParsedOptions) => number | undefined) | undefined;
  /**
   * Returns true if the exit status of a run with these options is its result, as for `--diff`: the task sets
   * process.exitCode to 0 or 1, and any failure exits with 2. Default: false.
   */
  readonly exitStatusIsResult?: ((options: ParsedOptions) => boolean) | undefined;
  /**
   * Returns the task for the parsed options, whose names are commander's (`--callout-arg` is `calloutArg`). Errors:
   * ProcessError BAD_OPTION for invalid combinations.
   */
  makeTask(options: ParsedOptions, context: BackendContext): Task;
}
