import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { RunningService, readAll, TestEndpoint, until } from "../testing/running-service.ts";

const tcp = { idleMs: 1_000, halfClosedMs: 1_000, drainMs: 0 };

/** Asks the Service; returns the answer, or the code of the error. */
async function ask(service: RunningService): Promise<string> {
  const client = await service.connect();
  client.end("question");
  return readAll(client).catch(({ code }: NodeJS.ErrnoException) => code ?? "");
}

test("an endpoint that accepts and never answers holds its own clients alone, until the idle limit", async () => {
  await using mute = await TestEndpoint.open((socket) => void socket.resume());
  await using good = await TestEndpoint.open((socket) => socket.end("good"));
  await using service = await RunningService.open({ endpoints: [mute.at, good.at] }, { tcp });
  const results: string[] = [];
  const asked = Array.from({ length: 10 }, async () => results.push(await ask(service)));
  await until("the answers of the other endpoint", () => results.length >= 5);
  expect(results.slice(0, 5)).toEqual(Array(5).fill("good"));
  await Promise.all(asked);
  expect(results.slice(5)).toEqual(Array(5).fill("ECONNRESET"));
  await until("they are counted", () => service.ends().closed === 5 && service.ends().idle === 5);
});

test("an endpoint that resets each connection after data does not affect the other one", async () => {
  await using bad = await TestEndpoint.open((socket) => socket.once("data", () => socket.resetAndDestroy()));
  await using good = await TestEndpoint.open((socket) => socket.once("data", (data) => socket.end(data)));
  await using service = await RunningService.open({ endpoints: [bad.at, good.at] });
  const results: string[] = [];
  for (let count = 0; count < 10; count++) results.push(await ask(service));
  expect(results.toSorted()).toEqual([...Array(5).fill("ECONNRESET"), ...Array(5).fill("question")]);
  await until("they are counted", () => service.ends().closed === 5 && service.ends()["endpoint-reset"] === 5);
});

test("after an endpoint froze, its connections end at the idle limit, and later clients get the other one", async () => {
  // The kernel of a frozen process acknowledges data and queues two connections; it answers no further SYN.
  const script = `const server = require("node:net").createServer((socket) => socket.on("data", (data) => socket.write(data)));
    server.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => console.log(server.address().port));`;
  const frozen = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
  try {
    const [line] = await once(frozen.stdout, "data");
    const at = { address: "127.0.0.1", port: Number(String(line)) };
    await using service = await RunningService.open({ endpoints: [at] }, { tcp, connectTimeoutMs: 50 });
    const old = await service.connect();
    old.write("before");
    expect(String((await once(old, "data"))[0])).toBe("before");
    frozen.kill("SIGSTOP");
    await using good = await TestEndpoint.open((socket) => socket.end("good"));
    await service.apply({ endpoints: [at, good.at] });
    old.write("after");
    await expect(readAll(old)).rejects.toMatchObject({ code: "ECONNRESET" });
    // Clients that the kernel queued get no answer, all others that of the other endpoint.
    const results: string[] = [];
    for (let count = 0; count < 12; count++) results.push(await ask(service));
    expect(results.slice(-6)).toEqual(Array(6).fill("good"));
    old.destroy();
    await until("nothing is open", () => service.runtime.relay.limit.open === 0);
  } finally {
    frozen.kill("SIGKILL");
  }
});
