import { once } from "node:events";
import { createServer, type Server } from "node:net";

/**
 * Returns `count` different free TCP ports of the loopback address.
 *
 * All of them stay open until the last one is known, so they differ. Another process may take one before it is used.
 */
export async function freePorts(count: number): Promise<readonly number[]> {
  const servers: Server[] = [];
  for (let index = 0; index < count; index++) {
    const server = createServer();
    await listen(server);
    servers.push(server);
  }
  const ports = servers.map(portOf);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

/** Returns a free TCP port of the loopback address; see {@link freePorts}. */
export async function freePort(): Promise<number> {
  const [port = 0] = await freePorts(1);
  return port;
}

/** Makes a server listen at a free TCP port of the loopback address, and returns the port. */
export async function listen(server: Server): Promise<number> {
  await once(server.listen(0, "127.0.0.1"), "listening");
  return portOf(server);
}

/** Returns the port that a server listens on. */
export function portOf(server: Server): number {
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the server does not listen on a TCP port");
  return address.port;
}
