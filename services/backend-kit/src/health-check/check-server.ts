import { createServer, type Server } from "node:http";
import { answerCheck, type CheckState } from "./answer.ts";

/** A server that answers a health check at one address. `HealthCheckServers` opens and closes it. */
export interface CheckServer {
  close(): Promise<void>;
}

/**
 * Listens on `port` of an address of this machine, and answers any path and method with `state()`.
 *
 * Rejects with the system's error if the address cannot be bound.
 */
export async function openCheckServer(host: string, port: number, state: () => CheckState): Promise<CheckServer> {
  const server = await listen(host, port, state);
  return { close: () => closeServer(server) };
}

function listen(host: string, port: number, state: () => CheckState): Promise<Server> {
  // Load balancers ask again every few seconds from many addresses; what they leave open must not add up.
  const server = createServer({ requestTimeout: 10_000, keepAliveTimeout: 15_000 }, (request, response) => {
    const { status, headers, body } = answerCheck(state());
    request.resume();
    response.writeHead(status, { ...headers, "Content-Length": Buffer.byteLength(body) }).end(body);
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    // IPv6 only: on Linux "::" would take IPv4 too, and then collide with the IPv4 server of the same port.
    server.listen({ host, port, ipv6Only: host.includes(":") }, () => {
      server.off("error", reject);
      // A connection that cannot be accepted (no file descriptor left) is that client's loss; the server goes on.
      server.on("error", () => undefined);
      resolve(server);
    });
  });
}

function closeServer(server: Server): Promise<void> {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(() => resolve()));
}
