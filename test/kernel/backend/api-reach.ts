import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";

/**
 * Makes a port of this machine's loopback address reachable as the same port of node n1's loopback address, so that the
 * API server's certificate is valid there. Its packets do not use the laboratory's network. The returned function stops
 * the relay on this machine; the relay on n1 ends with the laboratory.
 */
export async function bringPortToNode(laboratory: Laboratory, port: number): Promise<() => Promise<void>> {
  const path = join(laboratory.folder, "api-server.sock");
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.pipe(to);
      from.on("error", () => to.destroy());
      from.on("close", () => {
        sockets.delete(from);
        to.destroy();
      });
    }
  }).listen(path);
  await once(server, "listening");
  const relay = laboratory.start("n1", [
    process.execPath,
    fileURLToPath(new URL("./relay.ts", import.meta.url)),
    String(port),
    path,
  ]);
  if (relay.stdout !== null) await once(relay.stdout, "data");
  return async () => {
    relay.kill();
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  };
}
