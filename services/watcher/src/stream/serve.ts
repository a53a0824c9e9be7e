import { chmodSync, existsSync, rmSync, statSync } from "node:fs";
import { createServer as createHttp1Server } from "node:http";
import { createServer as createHttp2Server, createSecureServer, type ServerHttp2Session } from "node:http2";
import { connect, type ListenOptions, type Server, type Socket } from "node:net";
import { dirname } from "node:path";
import { Code, ConnectError } from "@connectrpc/connect";
import type { Log } from "@kpng/process/log.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { Task } from "@kpng/process/task.ts";
import type { readServerTls } from "@kpng/process/tls-files.ts";
import { aborted, waitMs } from "@kpng/process/wait.ts";
import { makeFastWatch } from "./fast-watch.ts";
import { type KeepaliveOptions, keepAlive } from "./keepalive.ts";
import { type ListenAddress, parseListenAddress } from "./listen-address.ts";
import { makeRequestHandler } from "./request-handler.ts";
import { makeRoutes, type RoutesOptions } from "./routes.ts";
import { sniffHttp } from "./sniff-http.ts";

export interface ServeOptions extends RoutesOptions {
  /** Where to listen; see parseListenAddress. */
  readonly listen: readonly string[];
  readonly tls?: ReturnType<typeof readServerTls>;
  readonly keepalive?: KeepaliveOptions | undefined;
  readonly log: Log;
  /** Called once all addresses are open, with the addresses as they can be dialled (a port 0 is resolved). */
  readonly onListening?: ((addresses: readonly string[]) => void) | undefined;
}

/** Largest request, in bytes: they carry a node's name and little else. */
const maxRequestBytes = 64 * 1024;

/** Streams of one connection at a time; a relay or a hollow-node test may have many, nobody has thousands. */
const maxStreamsPerConnection = 1_000;

/** How long open calls may take to end after the stop, in milliseconds. */
const stopGraceMs = 1_000;

/**
 * Serves gRPC, gRPC-Web and Connect, over HTTP/2 and HTTP/1.1, on every address.
 *
 * Errors: BAD_OPTION at once; LISTEN_FAILED when it runs, and nothing is served then.
 */
export function serveTask(options: ServeOptions): Task {
  const addresses = options.listen.map(parseListenAddress);
  return { name: "stream", run: (signal) => serve(addresses, options, signal) };
}

async function serve(addresses: readonly ListenAddress[], options: ServeOptions, signal: AbortSignal): Promise<void> {
  const stop = new AbortController();
  const watchFast = makeFastWatch(
    {
      ...options,
      hasLocalApi: options.hasLocalApi ?? true,
      hasGlobalApi: options.hasGlobalApi ?? true,
      maxRequestBytes,
    },
    stop.signal,
  );
  const route = makeRequestHandler({
    log: options.log,
    routes: makeRoutes(options, stop.signal),
    readMaxBytes: maxRequestBytes,
    shutdownSignal: stop.signal,
    // Small messages, many readers: compressing each stream by itself costs eight times the CPU.
    acceptCompression: [],
  });
  const handler: typeof route = (request, response) => {
    if (!watchFast(request, response)) route(request, response);
  };
  const sessions = new Set<ServerHttp2Session>();
  const settings = { maxConcurrentStreams: maxStreamsPerConnection };
  const http1 = createHttp1Server(handler);
  const makeServer = (): Server => {
    const http2 = options.tls
      ? createSecureServer(
          {
            ...options.tls,
            requestCert: true,
            rejectUnauthorized: true,
            minVersion: "TLSv1.2",
            allowHTTP1: true,
            settings,
          },
          handler,
        )
      : createHttp2Server({ settings }, handler);
    // All that a client learns is that its connection was closed: why is said here. Port scanners are not worth a line.
    http2.on("tlsClientError", (error: NodeJS.ErrnoException, socket: Socket) => {
      const level = error.code === "ECONNRESET" ? "debug" : "info";
      options.log[level]("TLS client refused", { peer: socket.remoteAddress, reason: error.message.trim() });
    });
    http2.on("session", (session: ServerHttp2Session) => {
      sessions.add(session);
      session.once("close", () => sessions.delete(session));
      session.on("error", (error) => options.log.debug("session failed", { reason: error.message }));
      keepAlive(session, options.keepalive);
    });
    return options.tls ? http2 : sniffHttp(http1, http2);
  };
  const servers: Server[] = [];
  try {
    const dialable: string[] = [];
    for (const address of addresses) {
      const server = makeServer();
      dialable.push(await listen(server, address));
      servers.push(server);
    }
    options.log.info("listening", { addresses: dialable });
    options.onListening?.(dialable);
    await aborted(signal);
  } finally {
    for (const server of servers) server.close();
    stop.abort(new ConnectError("the watcher stops", Code.Unavailable));
    for (const session of sessions) session.close();
    http1.closeIdleConnections();
    const isQuiet = Promise.all(
      [...sessions].map((session) => new Promise((resolve) => session.once("close", resolve))),
    );
    await Promise.race([isQuiet, waitMs(stopGraceMs, new AbortController().signal)]);
    for (const session of sessions) session.destroy();
    http1.closeAllConnections();
  }
}

async function listen(server: Server, address: ListenAddress): Promise<string> {
  if (address.kind === "unix") await removeStaleSocket(address.path);
  const target: ListenOptions =
    address.kind === "unix"
      ? { path: address.path }
      : {
          port: address.port,
          ipv6Only: address.isIPv6Only,
          ...(address.host === undefined ? {} : { host: address.host }),
        };
  const text = address.kind === "unix" ? `unix://${address.path}` : `tcp://${address.host ?? ""}:${address.port}`;
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) => reject(new ProcessError("LISTEN_FAILED", `cannot listen on ${text}`, { cause })));
    server.listen(target, resolve);
  });
  server.on("error", () => undefined);
  if (address.kind === "unix") {
    // As the original: the owner and its group, nobody else.
    chmodSync(address.path, 0o660);
    return text;
  }
  const bound = server.address();
  const port = typeof bound === "object" && bound !== null ? bound.port : address.port;
  const host =
    address.host === undefined || address.host === "0.0.0.0" || address.host === "::" ? "localhost" : address.host;
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/**
 * Removes the socket that a killed watcher left behind, but not one that somebody serves, and nothing that is no socket.
 *
 * Errors: LISTEN_FAILED.
 */
async function removeStaleSocket(path: string): Promise<void> {
  // The kernel's word for it would be "permission denied".
  if (!existsSync(dirname(path)))
    throw new ProcessError("LISTEN_FAILED", `cannot listen on unix://${path}: there is no folder ${dirname(path)}`);
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return;
  if (!stat.isSocket())
    throw new ProcessError("LISTEN_FAILED", `cannot listen on unix://${path}: a file is there that is no socket`);
  const isServed = await new Promise<boolean>((resolve) => {
    const probe = connect(path, () => {
      probe.destroy();
      resolve(true);
    });
    probe.once("error", () => resolve(false));
  });
  if (isServed) throw new ProcessError("LISTEN_FAILED", `cannot listen on unix://${path}: another process serves it`);
  rmSync(path);
}
