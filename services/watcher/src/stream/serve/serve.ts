import { createSecureServer, createServer, type ServerHttp2Session } from "node:http2";
import { Server, type Socket } from "node:net";
import { duplexPair } from "node:stream";
import { Server as TlsServer } from "node:tls";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { minTlsVersion } from "@kpng/process/credential-files.ts";
import { reasonOf, withoutOpensslTrace } from "@kpng/process/log.ts";
import type { Task } from "@kpng/process/task.ts";
import { aborted } from "@kpng/process/wait.ts";
import { Registry } from "prom-client";
import { Admission } from "../../connection/admission.ts";
import { Connections, handshakeMs } from "../../connection/connections.ts";
import { Refusals, readResources, resolveLimits } from "../../connection/limits.ts";
import { type ListenAddress, listen, parseListenAddress } from "../../connection/listen.ts";
import { isLoopback, rightsOfConnection } from "../../identity/rights.ts";
import { type CallHandler, makeCallHandler, type ServeOptions } from "./call-handler.ts";
import { makeCertificateExpiry, reloadTls } from "./reload-tls.ts";
import type { RoutesOptions } from "./routes.ts";

/**
 * Serves gRPC and Connect over HTTP/2 on every address.
 *
 * When the signal aborts, the task becomes not ready, accepts no more connections, and drains the open ones one after
 * another. The store must keep running until the task has resolved.
 *
 * Errors: this function throws BAD_OPTION; the task rejects with LISTEN_FAILED, and then serves no address.
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
  const { health, log, registry = new Registry(), drainMs, subscribers, tls, tokens } = options;
  const refusals = new Refusals(log, registry);
  const connections = new Connections(options, log, registry, refusals);
  const admission = new Admission(resolveLimits(options, readResources(), tls !== undefined), refusals);
  const handle = makeCallHandler(options, { connections, admission, refusals }, stop.signal);
  connections.start();
  subscribers.store.currency.observe(({ kind }) => {
    if (kind === "stale") connections.moveAll();
    if (kind === "fresh") connections.stay();
  });
  const servers = addresses.map((address) => makeServer(address, options, connections, handle));
  admission.start(servers.filter((_, index) => addresses[index]?.kind === "tcp"));
  const expiry = makeCertificateExpiry(registry);
  let reloading: NodeJS.Timeout | undefined;
  try {
    const dialable: string[] = [];
    for (const [index, address] of addresses.entries()) {
      const server = servers[index];
      if (server === undefined) continue;
      server.on("connection", () => subscribers.scheduler.connected());
      dialable.push(await listen(server, address, () => refusals.add("files", "")));
    }
    if (tls !== undefined) {
      reloading = reloadTls(tls, {
        servers: servers.filter((server) => server instanceof TlsServer),
        intervalMs: options.reloadMs ?? 10_000,
        log,
        health,
        expiry,
      });
    }
    log.info("listening", { addresses: dialable });
    warnOfRefusal(addresses, options);
    options.onListening?.(dialable);
    await aborted(signal);
    log.info("the watcher stops", { reason: reasonOf(signal.reason) });
    health.setWaiting(part, "the watcher stops");
    for (const server of servers) stopAccepting(server);
    if (drainMs !== 0) await connections.drain();
  } finally {
    for (const server of servers) stopAccepting(server);
    stop.abort(new ConnectError("the watcher stops", Code.Unavailable));
    connections.closeAll();
    await connections.gone(AbortSignal.timeout(stopGraceMs));
    connections.destroyAll();
    connections.stop();
    clearInterval(reloading);
    admission.stop();
    tokens?.stop();
  }
}

/**
 * Returns a transport to a watcher in the same process, which uses HTTP/2 over in-memory streams. A backend gets the
 * same messages as it would over the network, and has all rights and no limits, as it would over a unix socket. The
 * connections end when `stop` aborts, and only then: nothing starts their clock.
 */
export function localTransport(options: RoutesOptions & Pick<ServeOptions, "log">, stop: AbortSignal): Transport {
  const registry = new Registry();
  const refusals = new Refusals(options.log, registry);
  const connections = new Connections({}, options.log, registry, refusals);
  const admission = new Admission(resolveLimits({}, readResources(), false), refusals);
  const all: ServeOptions = { ...options, listen: [] };
  const handle = makeCallHandler(all, { connections, admission, refusals }, stop);
  const server = makeServer({ kind: "unix", path: "" }, all, connections, handle);
  stop.addEventListener("abort", () => connections.destroyAll(), { once: true });
  return createGrpcTransport({
    baseUrl: "http://localhost",
    acceptCompression: [],
    nodeOptions: {
      createConnection: () => {
        const [client, ours] = duplexPair();
        server.emit("connection", ours);
        return client;
      },
    },
  });
}

/**
 * Closes a server but not its connections, which are drained instead. `close` of an HTTP/2 server would close them,
 * too.
 */
function stopAccepting(server: Server): void {
  Server.prototype.close.call(server);
}

/**
 * Maximum number of concurrent streams per connection: the lowest number that RFC 9113 recommends. A node or a relay
 * needs one or two streams. nghttp2 refuses further streams before Node.js creates objects for
 * them, so this also limits the number of objects that one read from a hostile client can create.
 */
const maxStreamsPerConnection = 100;

/**
 * Number of calls that a client may cancel on a connection in a burst, and per second after that (CVE-2023-44487).
 * Node.js ignores the setting unless both are given, and would then allow a burst of 1000.
 */
const resetLimit = { streamResetBurst: 100, streamResetRate: 33 };

/** Creates the server for one address, with or without TLS. The server does not listen yet. */
function makeServer(
  address: ListenAddress,
  options: ServeOptions,
  connections: Connections,
  handle: CallHandler,
): Server {
  const { tls, log } = options;
  const limits = { settings: { maxConcurrentStreams: maxStreamsPerConnection }, ...resetLimit };
  const isUnix = address.kind === "unix";
  // A unix socket is protected by file permissions, and its clients do not use TLS.
  const files = isUnix ? undefined : tls?.();
  const server = files
    ? createSecureServer(
        {
          ...files,
          // Without a configured CA, Node.js would trust certificates from public CAs.
          requestCert: files.ca !== undefined,
          // A client whose certificate is not accepted has no rights, and the refusal of its calls gives the reason. If
          // anonymous clients have every right, the handshake refuses such a client, because then the CA alone decides
          // who is admitted.
          rejectUnauthorized: options.allowsAnonymous === true && options.tokens === undefined,
          minVersion: minTlsVersion,
          handshakeTimeout: handshakeMs,
          ...limits,
        },
        handle,
      )
    : createServer(limits, handle);
  // The client only sees a closed connection, so the reason is logged. Port scanners cause ECONNRESET.
  server.on("tlsClientError", (error: NodeJS.ErrnoException, socket: Socket) => {
    const level = error.code === "ECONNRESET" ? "debug" : "info";
    log[level]("TLS client refused", { peer: socket.remoteAddress, reason: withoutOpensslTrace(error.message) });
  });
  server.on("session", (session: ServerHttp2Session) => {
    const rights = rightsOfConnection(session.socket, isUnix, options);
    if (rights.problem !== undefined) {
      log.info("client has no rights", { peer: session.socket.remoteAddress, reason: rights.problem.message });
    }
    // A client on the unix socket has no other replica to move to, so its connection has no maximum age.
    connections.addSession(session, rights, !isUnix);
  });
  return server;
}

/** Logs the addresses whose clients cannot prove an identity and are therefore refused. */
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
