import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Counter, type Registry } from "prom-client";
import { parseHostPort } from "../connection/host-port.ts";
import type { Log } from "../log.ts";
import { ProcessError } from "../process-error.ts";
import type { Task } from "../task.ts";
import { aborted } from "../wait.ts";

/** Where a probe server listens, and what it reports to. */
export interface ProbeServerOptions {
  /** *Shape:* `host:port`, `:port` for all addresses, `[::1]:port`. */
  readonly address: string;
  /** Counts the connections that made way for newer ones. */
  readonly metrics: Registry;
  /** Gets a line when connections make way. Default: they are only counted. */
  readonly log?: Log | undefined;
}

/** Answers one request. `path` is without its query. */
export type AnswerProbe = (path: string, response: ServerResponse, request: IncomingMessage) => void | Promise<void>;

/**
 * Returns a task that serves probes and metrics over HTTP, even to a probe that competes with a flood of connections:
 * each connection gets one answer, and when 32 are open, a further one takes the place of the oldest. If it were
 * refused instead, 32 clients could keep all probes out, and the kubelet would restart the process.
 *
 * *Bound:* 32 connections with one request each.
 *
 * Errors: BAD_OPTION; LISTEN_FAILED from the running task if it cannot listen on the address.
 *
 * `statusServerTask` and the proxies' `proxyObserveTasks` call it. Separate, because these differ in their answers
 * only.
 */
export function probeServerTask(name: string, options: ProbeServerOptions, answer: AnswerProbe): Task {
  const target = parseHostPort(options.address, "--healthz-bind-address or --metrics-bind-address");
  return { name, run: (signal) => serve(target, options, answer, signal) };
}

async function serve(
  { host, port }: ReturnType<typeof parseHostPort>,
  options: ProbeServerOptions,
  answer: AnswerProbe,
  signal: AbortSignal,
): Promise<void> {
  const server = createServer(silenceLimits, (request: IncomingMessage, response: ServerResponse) => {
    response.shouldKeepAlive = false;
    // Not parsed by URL: it throws for paths that port scanners send, such as "//", and would end the process.
    const path = request.url?.split("?", 1)[0] ?? "/";
    Promise.resolve(answer(path, response, request)).catch((error: unknown) => {
      if (!response.headersSent) response.writeHead(500).end(String(error));
    });
  });
  // Node.js calls the listener for all requests of a chunk at once: 64 KiB have room for 2 000 requests of the metrics.
  server.maxRequestsPerSocket = 1;
  server.on("dropRequest", (_request: IncomingMessage, socket: Socket) => socket.destroy());
  makeWay(server, options);
  await new Promise<void>((resolve, reject) => {
    // The listener stays after the start, when the promise is settled and `reject` has no effect. An error then means
    // that the process has too many open files to accept a connection; without a listener, it would end the process.
    server.on("error", (cause) =>
      reject(new ProcessError("LISTEN_FAILED", `cannot serve health and metrics on ${options.address}`, { cause })),
    );
    server.listen(port, host, resolve);
  });
  await aborted(signal);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

/** Clients that connect and send no request; in milliseconds. */
const silenceLimits = { headersTimeout: 5_000, requestTimeout: 10_000, connectionsCheckingInterval: 1_000 };

/** Half of the 64 open files that a watcher reserves; its source and its state files need the rest. */
const maxConnections = 32;

/** Closes the oldest connection of a server whenever there are more than `maxConnections`. */
function makeWay(server: Server, { address, metrics, log }: ProbeServerOptions): void {
  const closed = makeClosedCounter(metrics);
  const open = new Set<Socket>();
  server.on("connection", (socket) => {
    open.add(socket);
    socket.once("close", () => open.delete(socket));
    const [oldest] = open;
    if (open.size <= maxConnections || oldest === undefined) return;
    closed.inc();
    const peer = oldest.remoteAddress ?? "";
    log?.info("connection for health and metrics closed: too many newer ones are open", { address, peer });
    open.delete(oldest);
    oldest.destroy();
  });
}

/** Returns the counter of connections that made way, which the probe servers of a process share. */
export function makeClosedCounter(metrics: Registry): Counter {
  const name = "kpng_status_connections_closed_total";
  const held = metrics.getSingleMetric(name);
  if (held instanceof Counter) return held;
  const help = "Connections for health and metrics that were closed, the oldest first, because more than 32 were open";
  return new Counter({ name, help, registers: [metrics] });
}
