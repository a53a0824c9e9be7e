import type { IncomingMessage, ServerResponse } from "node:http";
import type { Registry } from "prom-client";
import type { Log } from "../log.ts";
import type { Task } from "../task.ts";
import type { Health } from "./health.ts";
import { type AnswerProbe, type ProbeServerOptions, probeServerTask } from "./probe-server.ts";
import { registerProcessMetrics } from "./process-metrics.ts";
import { makeRenderer } from "./render-metrics.ts";

/** Address and content of a status server, which Kubernetes probes and Prometheus ask. */
export interface StatusServerOptions extends ProbeServerOptions {
  readonly health: Health;
  /** Answers requests for other paths; false for those that it does not know. Default none. */
  readonly pages?: AnswerPage | undefined;
}

/** Answers a request for a page; false for an unknown path, whose response it leaves untouched. */
export type AnswerPage = (path: string, response: ServerResponse, request: IncomingMessage) => boolean;

/**
 * Returns a task that serves /livez (always status 200), /healthz and /readyz (200 or 503), all with the health of each
 * part as JSON, and /metrics (Prometheus text).
 *
 * Errors: BAD_OPTION; LISTEN_FAILED from the running task if it cannot listen on the address.
 */
export function statusServerTask(options: StatusServerOptions): Task {
  return probeServerTask("status server", options, makeAnswer(options));
}

/** Values of the options `statusServerOptions`, as the command line parses them. */
export interface StatusAddresses {
  readonly healthzBindAddress?: string | undefined;
  readonly metricsBindAddress?: string | undefined;
}

/**
 * Returns the task of a status server for each address in the options: none, one for both, or two. If there is one,
 * registers the metrics of the process too. `kpng SOURCE`, and backends that are not service proxies, run the result;
 * service proxies have `proxyObserveTasks` of backend-kit, which answers like kube-proxy.
 */
export function statusServerTasks(
  addresses: StatusAddresses,
  health: Health,
  metrics: Registry,
  log?: Log,
  pages?: AnswerPage,
): readonly Task[] {
  const distinct = new Set(
    [addresses.healthzBindAddress, addresses.metricsBindAddress].filter((address) => address !== undefined),
  );
  if (distinct.size > 0) registerProcessMetrics(metrics, health);
  return [...distinct].map((address) => statusServerTask({ address, health, metrics, log, pages }));
}

function makeAnswer({ health, metrics, pages }: StatusServerOptions): AnswerProbe {
  const render = makeRenderer(metrics);
  return async (path, response, request) => {
    switch (path) {
      case "/livez":
        return answer(response, true, health);
      case "/healthz":
        return answer(response, health.isHealthy, health);
      case "/readyz":
        return answer(response, health.isReady, health);
      case "/metrics": {
        response.writeHead(200, { "content-type": metrics.contentType }).end(await render());
        return;
      }
      default:
        if (pages?.(path, response, request) === true) return;
        response.writeHead(404, { "content-type": "text/plain" }).end("/livez /healthz /readyz /metrics\n");
    }
  };
}

function answer(response: ServerResponse, isOk: boolean, health: Health): void {
  const parts = Object.fromEntries(health.parts);
  response.writeHead(isOk ? 200 : 503, { "content-type": "application/json" });
  response.end(`${JSON.stringify({ status: isOk ? "ok" : "failing", parts })}\n`);
}
