import { createServer, type Server } from "node:http";
import type { Family } from "@kpng/model/address.ts";
import type { NodePortAddresses } from "@kpng/service-plan/node-port-addresses.ts";
import { answerCheck, type CheckState } from "./answer.ts";

/** A health check that is being answered. */
export interface CheckServer {
  close(): Promise<void>;
}

/**
 * Listens on one port of each address, or of all of a family, and answers any path and method with `state()`.
 *
 * Rejects if one address cannot be had; none is left open then.
 */
export async function openCheckServer(
  family: Family,
  addresses: NodePortAddresses,
  port: number,
  state: () => CheckState,
): Promise<CheckServer> {
  const hosts = addresses.kind === "listed" ? addresses.addresses : [family === "v4" ? "0.0.0.0" : "::"];
  const results = await Promise.allSettled(hosts.map((host) => listen(host, port, state)));
  const servers = results.filter((result) => result.status === "fulfilled").map((result) => result.value);
  const close = async (): Promise<void> => {
    await Promise.all(servers.map(closeServer));
  };
  const failed = results.find((result) => result.status === "rejected");
  if (failed === undefined) return { close };
  await close();
  throw failed.reason;
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
