import { connect, createServer, type Server, type Socket } from "node:net";

/** Where to listen or to connect: a port of the loopback address, or the path of a unix socket. */
export type Place = number | string;

/** Accepts connections at one place and passes their bytes on to another one, both ways. */
export function relay(from: Place, to: Place): Server {
  const server = createServer((client) =>
    join(client, typeof to === "number" ? connect(to, "127.0.0.1") : connect(to)),
  );
  return typeof from === "number" ? server.listen(from, "127.0.0.1") : server.listen(from);
}

function join(one: Socket, other: Socket): void {
  // Either end may break at any time; then both are gone.
  one.on("error", () => other.destroy()).pipe(other);
  other.on("error", () => one.destroy()).pipe(one);
}
