import { createServer as createHttp1Server } from "node:http";
import type { Server } from "node:net";
import { Server as TlsServer } from "node:tls";
import { Code, ConnectError } from "@connectrpc/connect";
import type { Task } from "@kpng/process/task.ts";
import { aborted } from "@kpng/process/wait.ts";
import { Registry } from "prom-client";
import { AcceptLimit } from "../../connection/accept-limit.ts";
import { Admission } from "../../connection/admission.ts";
import { makeCertificateMetrics } from "../../connection/certificate-metrics.ts";
import { Connections } from "../../connection/connections.ts";
import { defaultLimits, readResources } from "../../connection/default-limits.ts";
import { listen } from "../../connection/listen.ts";
import { type ListenAddress, parseListenAddress } from "../../connection/listen-address.ts";
import { Refusals } from "../../connection/refusals.ts";
import { RequestMemory } from "../../connection/request-memory.ts";
import { ClientRights, isLoopback } from "../../identity/client-rights.ts";
import { prepareViews } from "../session/rounds.ts";
import { scheduler } from "../session/scheduler.ts";
import { StartLimits } from "../session/start-limits.ts";
import { makeCallHandler } from "./call-handler.ts";
import { makeServer } from "./make-server.ts";
import { reloadTls, standardReloadMs } from "./reload-tls.ts";
import type { RoutesOptions } from "./routes.ts";
import type { ServeOptions } from "./serve-options.ts";

/**
 * Serves gRPC, gRPC-Web and Connect, over HTTP/2 and HTTP/1.1, on every address.
 *
 * When the signal aborts, the task becomes not ready, accepts no more connections, and drains the open ones one after
 * the other. The store must keep running until the task has resolved.
 *
 * Errors: BAD_OPTION from this call; LISTEN_FAILED from the task, which then serves no address.
 *
 * The sinks `to-api` and `to-external` of `kpng SOURCE` run it. This file only starts and stops the parts of the
 * server: `makeServer` opens ports, and `makeCallHandler` answers calls.
 */
export function serveTask(options: ServeOptions): Task {
  const addresses = options.listen.map(parseListenAddress);
  return { name: part, run: (signal) => serve(addresses, options, signal) };
}

/** Maximum time for open calls to end after the stop and the drain, in milliseconds. */
const stopGraceMs = 1_000;

/** Name of this task, and of its part in the process's health. */
const part = "stream";

async function serve(addresses: readonly ListenAddress[], options: ServeOptions, signal: AbortSignal): Promise<void> {
  const stop = new AbortController();
  const { health, log, registry = new Registry(), maxWaiting, drainMs } = options;
  const refusals = new Refusals(log, registry);
  const connections = new Connections(options, log, registry, refusals);
  const clientRights = new ClientRights(options);
  const defaults = defaultLimits(readResources(), options.tls !== undefined);
  const { maxConnections, maxConnectionsPerAddress = 0 } = options;
  // Beyond the limit of open files, the system closes connections before anything could count them, also probes.
  const maxAccepted = Math.min(maxConnections || defaults.maxConnections, defaults.maxConnectionFiles);
  const accepts = new AcceptLimit(maxAccepted, maxConnectionsPerAddress, refusals);
  const requestMemory = new RequestMemory(options.maxRequestMemoryBytes ?? defaults.maxRequestBytes, refusals);
  const maxCalls = options.maxCalls || defaults.maxCalls;
  const maxQueries = options.maxQueries || defaults.maxQueries;
  const admission = new Admission({ maxCalls, maxQueries }, requestMemory, refusals);
  const context: RoutesOptions = { ...options, startLimits: new StartLimits({ registry, log, maxWaiting }), refusals };
  const handle = makeCallHandler(
    { ...options, ...context },
    { connections, clientRights, admission, requestMemory, refusals },
    stop.signal,
  );
  const http1 = createHttp1Server(handle);
  connections.clock.start();
  options.store.currency.observe(({ kind }) => {
    if (kind === "stale") connections.moveAll();
    else connections.stopMoving();
  });
  options.tokens?.start();
  const servers: Server[] = [];
  try {
    const dialable: string[] = [];
    for (const address of addresses) {
      const server = makeServer(address, options, { connections, clientRights, http1, handle });
      if (address.kind !== "unix") accepts.attach(server);
      server.on("connection", () => scheduler.connected());
      dialable.push(await listen(server, address, () => refusals.add("files", "")));
      servers.push(server);
    }
    const metrics = makeCertificateMetrics(registry);
    if (options.tls !== undefined) {
      const { clock } = connections;
      const secure = servers.filter((server) => server instanceof TlsServer);
      const onNewCa = (): void => connections.leaveForNewCa();
      reloadTls(options.tls, {
        servers: secure,
        clock,
        intervalMs: options.reloadMs ?? standardReloadMs,
        onNewCa,
        log,
        metrics,
      });
    }
    log.info("listening", { addresses: dialable });
    warnOfRefusal(addresses, options);
    options.onListening?.(dialable);
    const { store, proxyNames, hasLocalApi = true } = options;
    const proxyName = proxyNames.standard;
    const preparing = hasLocalApi ? prepareViews({ store, health, proxyName }, signal) : undefined;
    await Promise.all([aborted(signal), preparing]);
    health.setWaiting(part, "the watcher stops");
    for (const server of servers) server.close();
    if (drainMs !== 0) await connections.drain();
  } finally {
    for (const server of servers) server.close();
    stop.abort(new ConnectError("the watcher stops", Code.Unavailable));
    connections.closeAll();
    await connections.gone(AbortSignal.timeout(stopGraceMs));
    connections.destroyAll();
    connections.clock.stop();
    options.tokens?.stop();
  }
}

/** Logs the addresses whose clients can prove no identity, and are therefore refused. */
function warnOfRefusal(addresses: readonly ListenAddress[], { tls, allowsAnonymous, log }: ServeOptions): void {
  if (tls !== undefined || allowsAnonymous === true) return;
  for (const address of addresses) {
    if (address.kind === "unix" || isLoopback(address.host ?? "") || address.host === "localhost") continue;
    const remedy = "serve TLS with --listen-tls-key, or allow every client with --allow-anonymous";
    log.error("clients on other machines are refused: without TLS they cannot prove who they are", {
      address: `tcp://${address.host ?? ""}:${address.port}`,
      remedy,
    });
  }
}
