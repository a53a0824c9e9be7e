import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { keepYoungGenerationSmall } from "@kpng/process/run/v8-heap.ts";
import type { Task } from "@kpng/process/task.ts";
import type { TlsFiles } from "@kpng/process/tls-files.ts";
import type { Tracing } from "@kpng/process/trace/tracing.ts";
import type { Registry } from "prom-client";
import { dialWatchers } from "../discovery/dial-watchers.ts";
import { readStateOptions } from "../disk/state-folder.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";
import type { BackendCommand } from "./backend-command.ts";
import { readFollowOptions } from "./backend-options.ts";
import { observeBackend } from "./observe-backend.ts";

/** What a process has before it has a backend. */
export interface ProcessParts {
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  readonly tracing?: Tracing | undefined;
  /** For the connection to the watcher. */
  readonly tls?: TlsFiles | undefined;
}

/** A backend that follows watchers over the network, and what runs beside it. */
export interface PreparedBackend {
  readonly main: Task;
  readonly beside: readonly Task[];
}

/**
 * Makes a backend from the parsed values of `connectionOptions`, `followOptions`, `statusServerOptions` and its own:
 * with the watchers that it follows, its health and metrics, and its place on disk. Run it with `runWithMain`.
 *
 * Errors: BAD_OPTION.
 */
export function prepareBackend(backend: BackendCommand, options: ParsedOptions, parts: ProcessParts): PreparedBackend {
  keepYoungGenerationSmall();
  const { log, health, metrics, tracing, tls } = parts;
  const { keepsState = false } = backend;
  const isKept = typeof keepsState === "function" ? keepsState(options) : keepsState;
  const state = isKept ? readStateOptions(backend.name, options, log) : undefined;
  const { proxyHealth, tasks } = observeBackend(backend, options, { health, metrics });
  const api = String(options.api);
  const transport = dialWatchers({
    api,
    tls,
    maxMessageBytes: Number(options.maxMsgSize),
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
    ...readFollowOptions(options),
  };
  return { main: backend.makeTask(options, context), beside: tasks };
}
