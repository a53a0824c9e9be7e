import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { until } from "@kpng/backend-userspace/testing/running-service.ts";
import { expect, test } from "vitest";
import { freePorts } from "../cluster/ports.ts";
import { oneService } from "./one-service.ts";
import { kpngMain, usePrograms } from "./programs.ts";

const { at, start } = usePrograms();

test("while the process with the plan is stopped, workers reset clients beyond a limit, and serve the others later", {
  timeout: 240_000,
}, async () => {
  const endpoint = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => undefined);
    socket.pipe(socket);
  }).listen(0, "127.0.0.1");
  await once(endpoint, "listening");
  const api = `unix://${at("api.sock")}`;
  writeFileSync(at("state.json"), JSON.stringify(oneService((endpoint.address() as AddressInfo).port)));
  start(kpngMain, ["file", "-i", at("state.json"), "to-api", "--listen", api]);
  const [metricsPort = 0] = await freePorts(1);
  const ports = ["--healthz-bind-address", "127.0.0.1:0", "--metrics-bind-address", `127.0.0.1:${metricsPort}`];
  const options = ["--api", api, "--node-name", "n1", "--state-dir", "none", "--map", "127.0.0.1", ...ports];
  const program = start("services/backend-userspace/src/main.ts", [
    "--workers",
    "1",
    "--error-delay",
    "50ms",
    ...options,
  ]);
  const portOf = (): number => Number(/ -> 127\.0\.0\.1:(\d+)\n/.exec(program.stdout())?.[1] ?? 0);
  await until("the mapping", () => portOf() > 0);
  const metrics = async () => (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
  await expect.poll(metrics, { timeout: 30_000 }).toMatch(/^kpng_userspace_workers 1$/m);

  const clients: Socket[] = [];
  const ended = new Set<Socket>();
  const dial = async (): Promise<void> => {
    const client = connect(portOf(), "127.0.0.1");
    client.on("error", () => undefined).once("close", () => ended.add(client));
    clients.push(client);
    await Promise.race([once(client, "connect"), once(client, "close")]).catch(() => undefined);
  };
  program.signal("SIGSTOP");
  try {
    // Some thousands fit into the channel itself.
    while (ended.size < 100 && clients.length < 12_000) await Promise.all(Array.from({ length: 100 }, dial));
  } finally {
    program.signal("SIGCONT");
  }
  expect(ended.size).toBeGreaterThanOrEqual(100);
  const [first] = clients;
  first?.write("question");
  const [data] = await once(first as Socket, "data");
  expect(String(data)).toBe("question");
  for (const client of clients) client.destroy();
  endpoint.close();
});
