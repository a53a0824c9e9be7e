import type { ServerResponse } from "node:http";
import type { Health } from "@kpng/process/health/health.ts";
import { type AnswerProbe, probeServerTask } from "@kpng/process/health/probe-server.ts";
import { registerProcessMetrics } from "@kpng/process/health/process-metrics.ts";
import { makeRenderer } from "@kpng/process/health/render-metrics.ts";
import type { Log } from "@kpng/process/log.ts";
import type { Task } from "@kpng/process/task.ts";
import { Counter, type Registry } from "prom-client";
import type { HealthAnswer, ProxyHealth } from "./proxy-health.ts";

/** Options of {@link proxyObserveTasks}. */
export interface ProxyObserveOptions {
  readonly proxyHealth: ProxyHealth;
  /** Health of the process, whose parts `/readyz` lists. */
  readonly health: Health;
  readonly metrics: Registry;
  /** Answer to `/proxyMode`, e.g. "iptables". */
  readonly mode: string;
  /** Gets a line when connections make way for newer ones. Default: they are only counted. */
  readonly log?: Log | undefined;
}

/** Parsed `statusServerOptions` of @kpng/process; without an address, nothing is served. */
export interface ProxyObserveAddresses {
  readonly healthzBindAddress?: string | undefined;
  readonly metricsBindAddress?: string | undefined;
}

/**
 * Returns the HTTP servers of a service proxy for probes and metrics: /healthz and /livez with kube-proxy's bodies,
 * headers and counters, /readyz, /metrics and /proxyMode; one server if both addresses are the same. `observeBackend`
 * calls it for service proxies; other backends have `statusServerTasks` of @kpng/process. Separate from `ProxyHealth`,
 * which decides about health and knows no HTTP.
 *
 * Errors of the tasks: LISTEN_FAILED if an address cannot be bound.
 */
export function proxyObserveTasks(addresses: ProxyObserveAddresses, options: ProxyObserveOptions): readonly Task[] {
  const { healthzBindAddress, metricsBindAddress } = addresses;
  const distinct = new Set([healthzBindAddress, metricsBindAddress].filter((address) => address !== undefined));
  if (distinct.size === 0) return [];
  registerProcessMetrics(options.metrics, options.health);
  const answer = makeAnswer(options);
  const { metrics, log } = options;
  return [...distinct].map((address) => probeServerTask("observe", { address, metrics, log }, answer));
}

function makeAnswer({ proxyHealth, health, metrics, mode }: ProxyObserveOptions): AnswerProbe {
  const healthzTotal = createCounter(metrics, "healthz");
  const livezTotal = createCounter(metrics, "livez");
  const render = makeRenderer(metrics);
  return async (path, response) => {
    switch (path) {
      case "/healthz":
        return answerHealth(response, proxyHealth.healthz(), healthzTotal);
      case "/livez":
        return answerHealth(response, proxyHealth.livez(), livezTotal);
      case "/readyz": {
        const { isReady } = health;
        const body = { status: isReady ? "ok" : "failing", parts: Object.fromEntries(health.parts) };
        response.writeHead(isReady ? 200 : 503, jsonHeaders).end(`${JSON.stringify(body)}\n`);
        return;
      }
      case "/metrics":
        response.writeHead(200, { "content-type": metrics.contentType }).end(await render());
        return;
      case "/proxyMode":
        response.writeHead(200, { "content-type": "text/plain" }).end(mode);
        return;
      default:
        response.writeHead(404, { "content-type": "text/plain" });
        response.end("/livez /healthz /readyz /metrics /proxyMode\n");
    }
  };
}

const jsonHeaders = { "content-type": "application/json", "x-content-type-options": "nosniff" };

function answerHealth(response: ServerResponse, { isOk, body }: HealthAnswer, total: Counter<"code">): void {
  const code = isOk ? 200 : 503;
  total.inc({ code: String(code) });
  response.writeHead(code, jsonHeaders).end(JSON.stringify(body));
}

function createCounter(registry: Registry, probe: "healthz" | "livez"): Counter<"code"> {
  return new Counter({
    name: `kubeproxy_proxy_${probe}_total`,
    help: `Cumulative proxy ${probe} HTTP status`,
    labelNames: ["code"] as const,
    registers: [registry],
  });
}
