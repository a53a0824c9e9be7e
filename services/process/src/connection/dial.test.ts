import { createServer, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { listen } from "../../../../test/cluster/ports.ts";
import { connectHttp2 } from "./dial.ts";

test("a connection to a listener that never answers the TLS handshake fails within the limit, with its address", async () => {
  const sockets: Socket[] = [];
  const server = createServer((socket) => void sockets.push(socket.on("error", () => undefined)));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const api = `https://127.0.0.1:${await listen(server)}`;
  const { session } = connectHttp2({ api, connectLimitMs: 50 });
  const error = await new Promise<Error>((resolve) => session.once("error", resolve));
  expect(error.message).toBe(`no connection to ${api} within 50 ms`);
});
