import { createSocket } from "node:dgram";
import { createServer } from "node:net";

// A pod that says its name to everybody, on TCP and UDP, over both families: `node pod.ts NAME PORT…`.
// Prints one line when it is ready.

const [name = "", ...ports] = process.argv.slice(2);

function serveTcp(port: number): Promise<void> {
  const server = createServer((socket) => {
    // A client that has enough may reset the connection.
    socket.on("error", () => undefined);
    socket.end(name);
  });
  return new Promise((resolve) => server.listen(port, "::", () => resolve()));
}

function serveUdp(port: number): Promise<void> {
  const socket = createSocket("udp6");
  socket.on("message", (_message, from) => socket.send(name, from.port, from.address));
  return new Promise((resolve) => socket.bind(port, "::", () => resolve()));
}

await Promise.all(ports.map(Number).flatMap((port) => [serveTcp(port), serveUdp(port)]));
process.stdout.write("ready\n");
