import { connect, createServer } from "node:net";

// Makes a port of the test machine reachable in a namespace: `node relay.ts PORT SOCKET` listens there on
// 127.0.0.1:PORT and forwards every connection to a unix socket, which all namespaces share. Prints one line when it
// listens.

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
