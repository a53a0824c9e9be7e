import { spawn } from "node:child_process";
import { once } from "node:events";
import { setImmediate as turn } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { WatchedServer } from "../testing/watched-server.ts";

let watched: WatchedServer;
beforeEach(() => {
  watched = new WatchedServer();
});
afterEach(() => watched.stop());

/** Blocks the event loop, and lets due timers run before sockets are read. */
async function holdUp(ms: number): Promise<void> {
  await turn();
  const untilMs = performance.now() + ms;
  while (performance.now() < untilMs);
}

/** Runs a client in another process, so that it continues while the server is blocked. */
function startClient(code: string): { readonly said: () => string; readonly ended: Promise<unknown> } {
  const { host, port } = watched.socketAddress;
  const child = spawn(process.execPath, ["-e", `const [host, port] = ["${host}", ${port}]; ${code}`]);
  let text = "";
  child.stdout.on("data", (chunk) => {
    text += chunk;
  });
  child.stderr.on("data", (chunk) => {
    text += chunk;
  });
  return { said: () => text, ended: once(child, "close") };
}

describe("a server whose event loop was blocked keeps", () => {
  test("a connection whose reply to a ping arrived meanwhile", async () => {
    await watched.serve({ keepalive: { intervalMs: 20, timeoutMs: 400 } });
    const client = startClient(`
      const session = require("http2").connect("http://" + host + ":" + port);
      let pings = 0;
      session.on("ping", () => console.log("ping", ++pings)).on("error", (error) => console.log(error.code));
      session.on("close", () => { console.log("closed"); process.exit(); });
      process.on("SIGTERM", () => process.exit());
      setTimeout(() => process.exit(), 5_000);
    `);
    await expect.poll(client.said).toContain("ping 2");
    for (let round = 0; round < 3; round++) await holdUp(1_000);
    await client.ended;
    expect(client.said()).not.toContain("closed");
  });
});
