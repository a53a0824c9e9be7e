import { createServer, type ServerResponse } from "node:http";
import { Counter, type Registry } from "prom-client";
import { parseHostPort } from "../connection/host-port.ts";
import type { Log } from "../log.ts";
import { ProcessError } from "../process-error.ts";
import type { Task } from "../task.ts";
import { aborted } from "../wait.ts";
import type { Health } from "./health.ts";
import { registerProcessMetrics } from "./process-metrics.ts";

/** Address and content of a status server, which Kubernetes probes and Prometheus ask. */
export interface StatusServerOptions {
  /** *Shape:* `host:port`, `:port` for all addresses, `[::1]:port`. */
  readonly address: string;
  readonly health: Health;
  readonly metrics: Registry;
  /** Gets a line when connections are refused. Default: they are only counted. */
  readonly log?: Log | undefined;
}

/**
 * Returns a task that serves /livez (always status 200), /healthz and /readyz (200 or 503), all with the health of each
 * part as JSON, and /metrics (Prometheus text).
 *
 * Errors: BAD_OPTION; LISTEN_FAILED from the running task if it cannot listen on the address.
 */
export function statusServerTask(options: StatusServerOptions): Task {
  const target = parseHostPort(options.address, "--healthz-bind-address or --metrics-bind-address");
  return { name: "status server", run: (signal) => serve(target, options, signal) };
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
): readonly Task[] {
  const distinct = new Set(
    [addresses.healthzBindAddress, addresses.metricsBindAddress].filter((address) => address !== undefined),
  );
  if (distinct.size > 0) registerProcessMetrics(metrics, health);
  return [...distinct].map((address) => statusServerTask({ address, health, metrics, log }));
}

async function serve(
  { host, port }: ReturnType<typeof parseHostPort>,
  { address, health, metrics, log }: StatusServerOptions,
  signal: AbortSignal,
): Promise<void> {
  const server = createServer(silenceLimits, (request, response) => {
    // Not parsed by URL: it throws for paths that port scanners send, such as "//", and would end the process.
    switch (request.url?.split("?", 1)[0]) {
      case "/livez":
        return answer(response, true, health);
      case "/healthz":
        return answer(response, health.isHealthy, health);
      case "/readyz":
        return answer(response, health.isReady, health);
      case "/metrics":
        metrics.metrics().then(
          (text) => response.writeHead(200, { "content-type": metrics.contentType }).end(text),
          (error: unknown) => response.writeHead(500).end(String(error)),
        );
        return;
      default:
        response.writeHead(404, { "content-type": "text/plain" }).end("/livez /healthz /readyz /metrics\n");
    }
  });
  server.maxConnections = maxConnections;
  const refused = makeRefusedCounter(metrics);
  server.on("drop", (data) => {
    refused.inc();
    log?.info("connection for health and metrics refused: as many are open as may be", {
      address,
      peer: data?.remoteAddress ?? "",
    });
  });
  await new Promise<void>((resolve, reject) => {
    // The listener stays after the start, when the promise is settled and `reject` has no effect. An error then means
    // that the process has too many open files to accept a connection; without a listener, it would end the process.
    server.on("error", (cause) =>
      reject(new ProcessError("LISTEN_FAILED", `cannot serve health and metrics on ${address}`, { cause })),
    );
    server.listen(port, host, resolve);
  });
  await aborted(signal);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

/** Clients that connect and send no request must not take the place of probes; in milliseconds. */
const silenceLimits = { headersTimeout: 5_000, requestTimeout: 10_000, connectionsCheckingInterval: 1_000 };

/** Half of the 64 open files that a watcher reserves; its source and its state files need the rest. */
const maxConnections = 32;

/** Returns the counter of refused connections, which the status servers of a process share. */
export function makeRefusedCounter(metrics: Registry): Counter {
  const name = "kpng_status_refused_total";
  const held = metrics.getSingleMetric(name);
  if (held instanceof Counter) return held;
  const help = "Connections for health and metrics that were refused because 32 were open";
  return new Counter({ name, help, registers: [metrics] });
}

function answer(response: ServerResponse, isOk: boolean, health: Health): void {
  const parts = Object.fromEntries(health.parts);
  response.writeHead(isOk ? 200 : 503, { "content-type": "application/json" });
  response.end(`${JSON.stringify({ status: isOk ? "ok" : "failing", parts })}\n`);
}
