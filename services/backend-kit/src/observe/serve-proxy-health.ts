import { createServer, type ServerResponse } from "node:http";
import { parseHostPort } from "@kpng/process/connection/host-port.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { registerProcessMetrics } from "@kpng/process/health/process-metrics.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { Task } from "@kpng/process/task.ts";
import { aborted } from "@kpng/process/wait.ts";
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
  return [...distinct].map((address) => ({ name: "observe", run: (signal) => serve(address, answer, signal) }));
}

type Answer = (path: string, response: ServerResponse) => void | Promise<void>;

function makeAnswer({ proxyHealth, health, metrics, mode }: ProxyObserveOptions): Answer {
  const healthzTotal = createCounter(metrics, "healthz");
  const livezTotal = createCounter(metrics, "livez");
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
        response.writeHead(200, { "content-type": metrics.contentType }).end(await metrics.metrics());
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

async function serve(address: string, answer: Answer, signal: AbortSignal): Promise<void> {
  const { host, port } = parseHostPort(address);
  const server = createServer((request, response) => {
    // Not parsed by URL, which throws for paths that port scanners send ("//") and would end the process.
    const path = request.url?.split("?", 1)[0] ?? "/";
    Promise.resolve(answer(path, response)).catch((error: unknown) => response.writeHead(500).end(String(error)));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) =>
      reject(new ProcessError("LISTEN_FAILED", `cannot serve health and metrics on ${address}`, { cause })),
    );
    server.listen(port, host, resolve);
  });
  server.on("error", () => undefined);
  await aborted(signal);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}
