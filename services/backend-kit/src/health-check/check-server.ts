import { createServer, type Server } from "node:http";
import { answerCheck, type CheckState } from "./answer.ts";

/** Open HTTP server for one health-check node port at one address. `HealthCheckServers` opens and closes it. */
export interface CheckServer {
  close(): Promise<void>;
}

/**
 * Listens on `port` of an address of this machine, and answers any path and method with `state()`. Called by
 * `HealthCheckServers`. Separate from it, because that class decides which ports are open and knows no HTTP.
 *
 * Rejects with the system's error if the address cannot be bound.
 */
export async function openCheckServer(host: string, port: number, state: () => CheckState): Promise<CheckServer> {
  const server = await listen(host, port, state);
  return { close: () => closeServer(server) };
}

function listen(host: string, port: number, state: () => CheckState): Promise<Server> {
  // Load balancers check every few seconds from many addresses; connections that they leave open must not pile up.
  const server = createServer({ requestTimeout: 10_000, keepAliveTimeout: 15_000 }, (request, response) => {
    const { status, headers, body } = answerCheck(state());
    request.resume();
    response.writeHead(status, { ...headers, "Content-Length": Buffer.byteLength(body) }).end(body);
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    // IPv6 only: on Linux, "::" would bind IPv4 too, and the server for IPv4 on the same port would fail.
    server.listen({ host, port, ipv6Only: host.includes(":") }, () => {
      server.off("error", reject);
      // If a connection cannot be accepted (no file descriptor left), only its client fails; the server goes on.
      server.on("error", () => undefined);
      resolve(server);
    });
  });
}

function closeServer(server: Server): Promise<void> {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(() => resolve()));
}
