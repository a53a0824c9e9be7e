import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { growOldGenerationByHalf, keepYoungGenerationSmall } from "@kpng/process/run/v8-heap.ts";
import type { Task } from "@kpng/process/task.ts";
import type { ReadTls } from "@kpng/process/tls-files.ts";
import type { ReadToken } from "@kpng/process/token-file.ts";
import type { Tracing } from "@kpng/process/trace/tracing.ts";
import type { Registry } from "prom-client";
import { dialWatchers } from "../discovery/dial-watchers.ts";
import { readStateOptions } from "../disk/view-keeper.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";
import type { BackendCommand } from "./backend-command.ts";
import { readFollowOptions } from "./backend-options.ts";
import { observeBackend } from "./observe-backend.ts";

/** Parts of a process that exist before its backend. */
export interface ProcessParts {
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  readonly tracing?: Tracing | undefined;
  /** TLS files for the connection to the watcher. */
  readonly tls?: ReadTls | undefined;
  /** Token for the calls to the watcher. */
  readonly token?: ReadToken | undefined;
}

/** A backend that follows watchers over the network, to run with `runWithMain`. */
export interface PreparedBackend {
  readonly main: Task;
  /** Servers of health and metrics, which end with the main task. */
  readonly beside: readonly Task[];
}

/**
 * Creates a backend and everything around it (connection to the watchers, health, metrics, folder of the saved view)
 * from the parsed values of `connectionOptions`, `followOptions`, `statusServerOptions` and its own options.
 *
 * Errors: BAD_OPTION.
 */
export function prepareBackend(backend: BackendCommand, options: ParsedOptions, parts: ProcessParts): PreparedBackend {
  keepYoungGenerationSmall();
  growOldGenerationByHalf();
  const { log, health, metrics, tracing, tls, token } = parts;
  const { keepsState = false } = backend;
  const isKept = typeof keepsState === "function" ? keepsState(options) : keepsState;
  const state = isKept ? readStateOptions(backend.name, options, log) : undefined;
  const { proxyHealth, tasks } = observeBackend(backend, options, { health, metrics, log });
  const isQuestion = backend.isQuestion?.(options) === true;
  const api = String(options.api);
  const follow = readFollowOptions(options);
  const transport = dialWatchers({
    api,
    zone: String(options.zone ?? ""),
    tls,
    token,
    maxMessageBytes: follow.maxMessageBytes,
    log,
    folder: state?.folder,
  });
  const context = {
    transport,
    watcher: api,
    log,
    health,
    metrics,
    tracing,
    proxyHealth,
    state,
    ...follow,
    inspectSocket: isQuestion ? undefined : follow.inspectSocket,
  };
  // A question, such as --diff, is often asked beside the running backend and with its environment, as `kubectl exec`
  // has it. The addresses and the socket in there are taken.
  return { main: backend.makeTask(options, context), beside: isQuestion ? [] : tasks };
}
