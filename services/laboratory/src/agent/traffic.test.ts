import { once } from "node:events";
import { type AddressInfo, createServer, type Server } from "node:net";
import { afterEach, expect, test } from "vitest";
import { ask, awaitName } from "./traffic.ts";

let server: Server;
afterEach(() => new Promise((resolve) => server.close(resolve)));

/** Starts a server that sends its name `delayMs` after a connection was made. */
async function slowServer(name: string, delayMs: number): Promise<number> {
  server = createServer((socket) => {
    socket.on("error", () => undefined);
    setTimeout(() => socket.write(`${JSON.stringify({ name })}\n`), delayMs);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

const awaited = (port: number, name: string, timeoutMs: number) =>
  awaitName({ kind: "await", address: "127.0.0.1", port, name, timeoutMs });

test("awaitName waits for a name whose answer takes longer than the interval between attempts", async () => {
  expect(await awaited(await slowServer("a", 400), "a", 15_000)).toBe(true);
});

test.each(["tcp", "udp"] as const)("a %s packet from an address of no interface is an error", async (protocol) => {
  const target = { address: "127.0.0.1", port: 9, from: "192.0.2.1", timeoutMs: 5_000 };
  const answers = await ask({ kind: "ask", protocol, atOnce: 1, atMost: 1, wanted: 1, ...target });
  expect(answers).toEqual([{ kind: "error", code: "EADDRNOTAVAIL" }]);
});

test("awaitName returns false if only another name answers", async () => {
  expect(await awaited(await slowServer("b", 0), "a", 200)).toBe(false);
});
