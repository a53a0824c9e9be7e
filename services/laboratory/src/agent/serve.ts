import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";

/** What a client says that wants to be sent to without asking. */
export const goOn = "go on";

/**
 * Answers on the target ports of these addresses with one line of JSON, `{"name":"a","port":8080,"from":"10.1.1.12"}`:
 * who it is, where it listens and which client it sees. After that a connection is an echo; once the client has said
 * "go on" the server sends a block every few milliseconds, asked or not.
 */
export async function serve(name: string, addresses: readonly string[], ports: readonly number[]): Promise<void> {
  // A socket for each address: one for all would answer datagrams from whatever address the route prefers.
  const places = addresses.flatMap((address) => ports.map((port) => ({ address, port })));
  await Promise.all(
    places.flatMap(({ address, port }) => [serveTcp(name, address, port), serveUdp(name, address, port)]),
  );
}

async function serveTcp(name: string, address: string, port: number): Promise<void> {
  const server = createServer({ noDelay: true }, (socket) => {
    // A client that has its answer resets the connection.
    socket.on("error", () => undefined);
    socket.write(`${JSON.stringify({ name, port, from: socket.remoteAddress })}\n`);
    socket.on("data", (data) => {
      if (String(data) === goOn) sendForEver(socket);
      else socket.write(data);
    });
  });
  server.listen({ port, host: address, backlog: 1_024 });
  await once(server, "listening");
}

function sendForEver(socket: Socket): void {
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
