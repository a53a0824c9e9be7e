import { connect, createServer, type Server, type Socket } from "node:net";

/** Address to listen on or to connect to: a port of the loopback address, or the path of a unix socket. */
export type Place = number | string;

/** Accepts connections at `from` and forwards them to `to`, in both directions. */
export function relay(from: Place, to: Place): Server {
  const server = createServer((client) =>
    join(client, typeof to === "number" ? connect(to, "127.0.0.1") : connect(to)),
  );
  return typeof from === "number" ? server.listen(from, "127.0.0.1") : server.listen(from);
}

function join(one: Socket, other: Socket): void {
  // An error on either side closes both.
  one.on("error", () => other.destroy()).pipe(other);
  other.on("error", () => one.destroy()).pipe(one);
}
