import { accept, close, listen, prepareForRequests, receive, send, socketAddress } from "./c-sockets.ts";

/**
 * The endpoint of `packet-path`: `path-server.ts ADDRESS:PORT` serves one connection after the other. The first byte
 * that `path-client.ts` sends tells what it wants: "e" an echo of each message, "t" one byte when everything has
 * arrived.
 */
const server = listen(socketAddress(process.argv[2] ?? ""));
const buffer = Buffer.alloc(256 * 1024);
for (;;) {
  const socket: number = accept(server, null, null);
  prepareForRequests(socket);
  let count: number = receive(socket, buffer, buffer.length, 0);
  if (count > 0 && buffer[0] === 0x65) {
    while (count > 0) {
      send(socket, buffer, count, 0);
      count = receive(socket, buffer, buffer.length, 0);
    }
  } else if (count > 0) {
    while (count > 0) count = receive(socket, buffer, buffer.length, 0);
    send(socket, buffer, 1, 0);
  }
  close(socket);
}
