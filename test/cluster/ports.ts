import { once } from "node:events";
import { createServer, type Server } from "node:net";

/**
 * Returns `count` different TCP ports of the loopback address that nothing listens on.
 *
 * All are held until the last one is known, so they differ; between then and their use another process may take one.
 */
export async function freePorts(count: number): Promise<readonly number[]> {
  const servers: Server[] = [];
  for (let index = 0; index < count; index++) {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    servers.push(server);
  }
  const ports = servers.map(portOf);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

/** The port that a server listens on. */
export function portOf(server: Server): number {
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the server listens on no TCP port");
  return address.port;
}
