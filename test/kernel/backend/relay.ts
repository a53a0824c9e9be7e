import { connect, createServer } from "node:net";

// Brings a port of the test machine into a namespace: `node relay.ts PORT SOCKET` listens on 127.0.0.1:PORT there and
// passes every connection on to a unix socket, which all namespaces see. Prints one line when it listens.

const [port = "", socketPath = ""] = process.argv.slice(2);

createServer((client) => {
  const server = connect(socketPath);
  for (const [from, to] of [
    [client, server],
    [server, client],
  ] as const) {
    from.pipe(to);
    from.on("error", () => to.destroy());
    from.on("close", () => to.destroy());
  }
}).listen(Number(port), "127.0.0.1", () => process.stdout.write("ready\n"));
