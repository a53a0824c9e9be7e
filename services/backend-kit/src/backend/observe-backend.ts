import { families } from "@kpng/model/address.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { statusServerTasks } from "@kpng/process/health/status-server.ts";
import type { Log } from "@kpng/process/log.ts";
import type { Task } from "@kpng/process/task.ts";
import type { Registry } from "prom-client";
import { ProxyHealth, proxyObserveTasks } from "../observe/proxy-health.ts";
import { type ParsedOptions, textOption } from "../types/parsed-options.ts";
import type { BackendCommand } from "./backend-command.ts";

/** Health and metrics servers of a process with one backend. */
export interface ObservedBackend {
  /** For the backend's context; undefined if the backend is not a service proxy. */
  readonly proxyHealth: ProxyHealth | undefined;
  /** Servers to run beside the backend; empty if no address is given. */
  readonly tasks: readonly Task[];
}

/**
 * Returns the servers for `--healthz-bind-address` and `--metrics-bind-address`. For a service proxy they answer health
 * as kube-proxy does, for other backends with the health of the process.
 */
export function observeBackend(
  { proxyMode }: Pick<BackendCommand, "proxyMode">,
  options: ParsedOptions,
  { health, metrics, log }: { readonly health: Health; readonly metrics: Registry; readonly log?: Log | undefined },
): ObservedBackend {
  const addresses = {
    healthzBindAddress: textOption(options, "healthzBindAddress"),
    metricsBindAddress: textOption(options, "metricsBindAddress"),
  };
  if (proxyMode === undefined)
    return { proxyHealth: undefined, tasks: statusServerTasks(addresses, health, metrics, log) };
  const proxyHealth = new ProxyHealth({ families });
  return { proxyHealth, tasks: proxyObserveTasks(addresses, { proxyHealth, health, metrics, log, mode: proxyMode }) };
}
