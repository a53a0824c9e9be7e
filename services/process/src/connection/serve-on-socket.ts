import { createServer, type ServerHttp2Session } from "node:http2";
import type { ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { aborted } from "../wait.ts";
import { forgetHost } from "./forget-host.ts";
import { listenOnSocket } from "./listen.ts";

/** Maximum size of a request, in bytes. The services on such sockets take at most a name. */
const maxRequestBytes = 64 * 1024;

/**
 * Serves the services of `routes` on a unix socket, with gRPC and Connect over HTTP/2, to the socket's owner and group,
 * until `signal` aborts. Then, open connections are closed. Errors: LISTEN_FAILED.
 */
export async function serveOnSocket(
  path: string,
  routes: (router: ConnectRouter) => void,
  signal: AbortSignal,
): Promise<void> {
  const sessions = new Set<ServerHttp2Session>();
  const handle = connectNodeAdapter({
    routes,
    readMaxBytes: maxRequestBytes,
    // The longest delay of a Node.js timer, which would fire immediately for a longer one. A request with a longer
    // deadline is refused (INVALID_ARGUMENT).
    maxTimeoutMs: 2 ** 31 - 1,
  });
  const server = createServer((request, response) => {
    forgetHost(request);
    handle(request, response);
  });
  server.on("session", (session) => {
    sessions.add(session);
    // A broken connection concerns only its client.
    session.on("error", () => undefined).once("close", () => sessions.delete(session));
  });
  await listenOnSocket(server, path);
  // From now on, an error means that one connection could not be accepted; unhandled, it would end the process.
  server.on("error", () => undefined);
  await aborted(signal);
  for (const session of sessions) session.destroy();
  await new Promise((resolve) => server.close(resolve));
}
