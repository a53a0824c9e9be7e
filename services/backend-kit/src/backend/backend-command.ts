import type { Transport } from "@connectrpc/connect";
import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import type { OptionSpec } from "@kpng/process/options.ts";
import type { Task } from "@kpng/process/task.ts";
import type { Tracing } from "@kpng/process/trace/tracing.ts";
import type { Registry } from "prom-client";
import type { StateOptions } from "../disk/state-folder.ts";
import type { ProxyHealth } from "../observe/proxy-health.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";

/** What a process gives each backend, whether that is its only job or one of several. */
export interface BackendContext {
  /** Reaches the watcher, in this process or elsewhere. */
  readonly transport: Transport;
  readonly nodeName: string;
  /** "" for the watcher's default. */
  readonly serviceProxyName: string;
  /**
   * Longest message of a watcher, and most that packed operations may be when they are unpacked, in bytes. Default 64
   * MiB.
   */
  readonly maxMessageBytes?: number | undefined;
  /** First delay after a lost stream or a failed sync, in milliseconds. */
  readonly errorDelayMs: number;
  /** True to end after the first sync that succeeds. */
  readonly isOnce: boolean;
  /** With `isOnce`: longest time until there is a view, in milliseconds; 0 for none. */
  readonly firstViewLimitMs?: number | undefined;
  /** What `transport` reaches, for messages. Default the watcher of this process. */
  readonly watcher?: string | undefined;
  /** Path of the unix socket on which `backendTask` answers questions about the backend; undefined for none. */
  readonly inspectSocket?: string | undefined;
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  /** Where traces go; `backendTask` records those of syncs. */
  readonly tracing?: Tracing | undefined;
  /** Of a service proxy whose process serves it; `backendTask` fills it. */
  readonly proxyHealth?: ProxyHealth | undefined;
  /** Where a backend that `keepsState` does so; `backendTask` uses it. */
  readonly state?: StateOptions | undefined;
}

/**
 * A backend as the command line knows it: `kpng-NAME`, `kpng local to-NAME`, `kpng file … to-local to-NAME`.
 */
export interface BackendCommand {
  /** Lower case letters, digits, dashes; e.g. "json". */
  readonly name: string;
  readonly description: string;
  /** Options of this backend alone. */
  readonly options: readonly OptionSpec[];
  /** Shown below the options; `COMMAND` stands for how the backend was called. */
  readonly examples: string;
  /** Of a backend that is a service proxy: what kube-proxy's /proxyMode would say, e.g. "iptables". */
  readonly proxyMode?: string | undefined;
  /** True if it has an option `--diff`: it compares what stands with what should, prints it, and answers. */
  readonly canDiff?: boolean | undefined;
  /**
   * True if the exit code of a run with these options is an answer: the task sets process.exitCode to 0 or 1, and
   * whatever keeps it from finding out is 2. Default: never.
   */
  readonly isQuestion?: ((options: ParsedOptions) => boolean) | undefined;
  /**
   * True if it has `stateOptions`: the process then reads them, and remembers its watchers there too. A function where
   * that depends on the other options: who only looks must not write.
   */
  readonly keepsState?: boolean | ((options: ParsedOptions) => boolean) | undefined;
  /**
   * Makes the task from the parsed options, under the names that commander gives them (`--callout-arg` is
   * `calloutArg`). Errors: ProcessError BAD_OPTION for values that do not go together.
   */
  makeTask(options: ParsedOptions, context: BackendContext): Task;
}
