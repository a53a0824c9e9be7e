import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";

/**
 * Answers on the given ports of the given addresses, over TCP and UDP, with one line of JSON that contains `name`, the
 * port and the client's source address, for example `{"name":"a","port":8080,"from":"10.1.1.12"}`. On a TCP connection
 * it then echoes data or, after `startSending`, sends a byte every 15 ms.
 */
export async function serve(name: string, addresses: readonly string[], ports: readonly number[]): Promise<void> {
  // Use one socket per address, because a wildcard socket would answer datagrams from the address that the route
  // prefers.
  const listeners = addresses.flatMap((address) => ports.map((port) => ({ address, port })));
  await Promise.all(
    listeners.flatMap(({ address, port }) => [serveTcp(name, address, port), serveUdp(name, address, port)]),
  );
}

/** A TCP client that sends this line gets data without sending anything else. */
export const startSending = "start sending";

async function serveTcp(name: string, address: string, port: number): Promise<void> {
  const server = createServer({ noDelay: true }, (socket) => {
    // Clients reset the connection as soon as they have their answer.
    socket.on("error", () => undefined);
    socket.write(`${JSON.stringify({ name, port, from: socket.remoteAddress })}\n`);
    socket.on("data", (data) => {
      if (String(data) === startSending) sendUntilClosed(socket);
      else socket.write(data);
    });
  });
  server.listen({ port, host: address, backlog: 1_024 });
  await once(server, "listening");
}

function sendUntilClosed(socket: Socket): void {
  const timer = setInterval(() => socket.write("x"), 15);
  socket.once("close", () => clearInterval(timer));
}

async function serveUdp(name: string, address: string, port: number): Promise<void> {
  const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
  socket.on("error", () => undefined);
  socket.on("message", (_message, from) => {
    socket.send(JSON.stringify({ name, port, from: from.address }), from.port, from.address);
  });
  socket.bind(port, address);
  await once(socket, "listening");
}
