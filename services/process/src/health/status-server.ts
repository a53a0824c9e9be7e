import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { collectDefaultMetrics, Gauge, type Registry } from "prom-client";
import packageJson from "../../package.json" with { type: "json" };
import { parseHostPort } from "../connection/listen.ts";
import { ProcessError } from "../process-error.ts";
import type { Task } from "../task.ts";
import { aborted } from "../wait.ts";
import type { Health } from "./health.ts";

/** Answers a request; returns false, and leaves the response untouched, if it does not know the path. */
export type AnswerPage = (path: string, response: ServerResponse, request: IncomingMessage) => boolean;

/** Address and content of a status server, which Kubernetes probes and Prometheus scrapes. */
interface StatusServerOptions {
  /** *Shape:* `host:port`, `:port` for all addresses, `[::1]:port`. */
  readonly address: string;
  readonly health: Health;
  readonly metrics: Registry;
  /** Gets each request first; the status server answers the requests that `pages` does not. */
  readonly pages?: AnswerPage | undefined;
}

/** Parsed values of `statusServerOptions`. */
export interface StatusAddresses {
  readonly healthzBindAddress?: string | undefined;
  readonly metricsBindAddress?: string | undefined;
}

/**
 * Returns a status-server task for each distinct address in the options: none, one for both, or two. If there is any,
 * this function also registers the process's metrics.
 */
export function statusServerTasks(
  { healthzBindAddress, metricsBindAddress }: StatusAddresses,
  options: Omit<StatusServerOptions, "address">,
): readonly Task[] {
  const distinct = new Set([healthzBindAddress ?? "", metricsBindAddress ?? ""].filter((address) => address !== ""));
  if (distinct.size > 0) registerProcessMetrics(options.metrics, options.health);
  return [...distinct].map((address) => statusServerTask({ ...options, address }));
}

/**
 * Returns a task that serves /livez (always status 200), /healthz and /readyz (200 or 503), all with the health of each
 * part as JSON, and /metrics (Prometheus text).
 *
 * Each connection gets one answer. While 16 connections are open, a new one replaces the oldest; if it were refused
 * instead, 16 clients could keep out all probes, and the kubelet would restart the process.
 *
 * *Bound:* 16 connections with one request each.
 *
 * Errors: BAD_OPTION; LISTEN_FAILED from the running task if it cannot listen on the address.
 */
export function statusServerTask(options: StatusServerOptions): Task {
  const target = parseHostPort(options.address, "--healthz-bind-address or --metrics-bind-address");
  return { name: "status server", run: (signal) => serve(target, options, signal) };
}

async function serve(
  { host, port }: ReturnType<typeof parseHostPort>,
  options: StatusServerOptions,
  signal: AbortSignal,
): Promise<void> {
  const server = createServer(silenceLimits, (request: IncomingMessage, response: ServerResponse) => {
    response.shouldKeepAlive = false;
    answer(request, response, options).catch((error: unknown) => {
      if (!response.headersSent) response.writeHead(500).end(String(error));
    });
  });
  // Node.js calls the listener for all requests in a chunk in one go, and 64 KiB have room for 2 000 metrics requests.
  // A client that sends two requests at once may lose the first answer, too; probes and Prometheus do not.
  server.maxRequestsPerSocket = 1;
  server.on("dropRequest", (_request: IncomingMessage, socket: Socket) => socket.destroy());
  closeOldest(server, maxConnections, () => "all");
  server.listen(port, host);
  await once(server, "listening").catch((cause: unknown) => {
    throw new ProcessError("LISTEN_FAILED", `cannot serve health and metrics on ${options.address}`, { cause });
  });
  // A connection could not be accepted because too many files are open; unhandled, this would end the process.
  server.on("error", () => undefined);
  await aborted(signal);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  { health, metrics, pages }: StatusServerOptions,
): Promise<void> {
  // Do not use `new URL` here: it throws for paths that port scanners send, such as "//".
  const path = request.url?.split("?", 1)[0] ?? "/";
  if (pages?.(path, response, request) === true) return;
  const answerHealth = (isOk: boolean): void => {
    const body = { status: isOk ? "ok" : "failing", parts: Object.fromEntries(health.parts) };
    response.writeHead(isOk ? 200 : 503, { "content-type": "application/json" }).end(`${JSON.stringify(body)}\n`);
  };
  switch (path) {
    case "/livez":
      return answerHealth(true);
    case "/healthz":
      return answerHealth(health.isHealthy);
    case "/readyz":
      return answerHealth(health.isReady);
    case "/metrics": {
      const text = await metrics.metrics();
      response.writeHead(200, { "content-type": metrics.contentType }).end(text);
      return;
    }
    default:
      response.writeHead(404, { "content-type": "text/plain" }).end("/livez /healthz /readyz /metrics\n");
  }
}

/** Time limits for clients that connect and send no request, in milliseconds. */
export const silenceLimits = { headersTimeout: 5_000, requestTimeout: 10_000, connectionsCheckingInterval: 1_000 };

/**
 * Maximum number of open connections of one address. A process has at most two addresses, which may take half of the 64
 * open files that a watcher reserves. Its source and its state files need the rest.
 */
const maxConnections = 16;

/**
 * Closes the oldest connection of a client whenever a new one makes them more than `max`. `clientOf` tells clients
 * apart; connections with equal results share the bound.
 */
export function closeOldest(server: Server, max: number, clientOf: (socket: Socket) => string): void {
  const clients = new Map<string, Set<Socket>>();
  server.on("connection", (socket) => {
    const client = clientOf(socket);
    const open = clients.get(client) ?? new Set();
    clients.set(client, open.add(socket));
    socket.once("close", () => {
      open.delete(socket);
      // A connection closed for a newer one may end after the client's next connections have got another set.
      if (open.size === 0 && clients.get(client) === open) clients.delete(client);
    });
    const [oldest] = open;
    if (open.size <= max || oldest === undefined) return;
    open.delete(oldest);
    oldest.destroy();
  });
}

/** Gauges of prom-client that have names of counters, which promtool rejects, and only sum up other gauges. */
const misnamed = ["nodejs_active_resources_total", "nodejs_active_handles_total", "nodejs_active_requests_total"];

/** Registers the metrics that every process has: CPU, memory, event loop, version, and the health of its parts. */
export function registerProcessMetrics(registry: Registry, health: Health): void {
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  for (const name of misnamed) registry.removeSingleMetric(name);
  new Gauge({
    name: "kpng_build_info",
    help: "1, with the version of kpng and of Node.js",
    labelNames: ["version", "nodejs"],
    registers,
  }).set({ version: packageJson.version, nodejs: process.version }, 1);
  const gauge = (name: string, help: string, holds: (part: { isHealthy: boolean; isReady: boolean }) => boolean) =>
    new Gauge({
      name,
      help,
      labelNames: ["part"] as const,
      registers,
      collect() {
        for (const [part, state] of health.parts) this.set({ part }, holds(state) ? 1 : 0);
      },
    });
  gauge("kpng_part_healthy", "1 unless this part of the process keeps failing at its work", (part) => part.isHealthy);
  gauge("kpng_part_ready", "1 once this part of the process has what it needs to serve", (part) => part.isReady);
}
