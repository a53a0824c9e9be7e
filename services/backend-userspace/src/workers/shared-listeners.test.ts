import { readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test, vi } from "vitest";
import { until } from "../testing/running-service.ts";
import { closeAll, connectToAll, exchange, listening, useWorkers } from "../testing/use-workers.ts";

vi.setConfig({ testTimeout: 120_000 });

// Listeners whose sockets two workers (`--workers 2`) share.
const { echo, serve, workerProgram } = useWorkers();

test("the backlog of a shared socket stays 4 096", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] });
  await connectToAll(service);
  expect(listening(service.port).split(/\s+/)[2]).toBe("4096");
});

test("a worker gets sockets only when it receives messages, so that no connection waits without end", async () => {
  // Its start takes as long as this test wants. Node.js would open sockets at once, and accept from them.
  const program = workerProgram(`import { existsSync, writeFileSync } from "node:fs";
    writeFileSync(folder + "/" + process.pid, "");
    while (!existsSync(folder + "/go")) await new Promise((resolve) => setTimeout(resolve, 20));`);
  const folder = dirname(program);
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] }, { workerProgram: program });
  await until("both workers", () => readdirSync(folder).length === 3);
  for (let round = 0; round < 5; round++) {
    const clients = await Promise.all(Array.from({ length: 12 }, () => service.connect()));
    await Promise.all(clients.map((client) => exchange(client, "hello")));
  }
  expect(service.runtime.relay.workers?.running).toEqual([]);
  writeFileSync(join(folder, "go"), "");
  await connectToAll(service);
});

test("a removed Service accepts nothing in any process, and is forgotten after its last connection", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] });
  const clients = await connectToAll(service);
  const { port } = service;
  await service.apply(undefined);
  // At the end of the sync, not some time later.
  expect(listening(port)).toBe("");
  await Promise.all(clients.map((client) => exchange(client, "still here")));
  expect(service.requested).toEqual([]);
  await closeAll(service, clients);
  await until("the request", () => service.requested.length > 0);
});

test("a Service that comes back at once gets the same port, because no process listens there any more", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] });
  await closeAll(service, await connectToAll(service));
  const { port } = service;
  for (let again = 0; again < 20; again++) {
    await service.apply(undefined);
    await service.apply({ endpoints: [endpoint.at] });
    expect(service.port).toBe(port);
  }
});
