import { type AddressInfo, createServer, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { connectHttp2 } from "./dial.ts";

test("a connection to a listener that never answers the TLS handshake fails within the limit, with its address", async () => {
  const sockets: Socket[] = [];
  const server = createServer((socket) => void sockets.push(socket.on("error", () => undefined))).listen(
    0,
    "127.0.0.1",
  );
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  await new Promise((resolve) => server.once("listening", resolve));
  const api = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { session } = connectHttp2({ api, connectLimitMs: 50 });
  const error = await new Promise<Error>((resolve) => session.once("error", resolve));
  expect(error.message).toBe(`no connection to ${api} within 50 ms`);
});
