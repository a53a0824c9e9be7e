import { execFileSync } from "node:child_process";
import { connect, type Socket } from "node:net";
import { expect, test, vi } from "vitest";
import { readAll, TestEndpoint, until } from "../testing/running-service.ts";
import { SilentEndpoint } from "../testing/silent-endpoint.ts";
import { connectToAll, useWorkers } from "../testing/use-workers.ts";

vi.setConfig({ testTimeout: 120_000 });

// How workers (`--workers 2`) carry connections: as the process with the plan does.
const { echo, keep, serve } = useWorkers();

test("data after the client's end of data reaches the client, whichever process accepts", async () => {
  const endpoint = keep(
    await TestEndpoint.open((socket) => {
      let text = "";
      socket.on("data", (data) => {
        text += String(data);
        if (text === "hello") socket.write(text);
      });
      socket.on("end", () => socket.end(`got ${text}`));
    }),
  );
  const service = await serve({ endpoints: [endpoint.at] });
  const clients = await connectToAll(service);
  for (const client of clients) client.end("question");
  expect(new Set(await Promise.all(clients.map(readAll)))).toEqual(new Set(["got helloquestion"]));
});

test("no process reads from a client before the endpoint is connected", async () => {
  const silent = keep(await SilentEndpoint.open());
  const service = await serve({ endpoints: [silent.at] });
  const { workers, open: own } = service.runtime.relay;
  const counts = (): readonly number[] => [own.size, ...(workers?.running ?? []).map(({ connections }) => connections)];
  await until("the workers", () => counts().length === 3);
  const clients: Socket[] = [];
  await until("connections in each process", () => {
    if (clients.length < 500) clients.push(connect(service.port, "127.0.0.1").on("error", () => undefined));
    clients.at(-1)?.write("question");
    return counts().every((count) => count > 0);
  });
  const filter = ["state", "established", `sport = :${service.port}`];
  const unread = (): string => execFileSync("ss", ["-tnH", ...filter], { encoding: "utf8" });
  await until("all data waits in the kernel", () => (unread().match(/^8 /gm) ?? []).length === clients.length);
  for (const client of clients) client.destroy();
});

test("each process sends the PROXY protocol header, with its client's address and the frontend's", async () => {
  const endpoint = keep(
    await TestEndpoint.open((socket) => {
      let text = "";
      socket.on("data", (data) => {
        text += String(data);
        const [header = "", rest = ""] = text.split("\r\n");
        if (rest !== "hello") return;
        headers.push(header);
        socket.write(rest);
      });
    }),
  );
  const headers: string[] = [];
  const service = await serve({ endpoints: [endpoint.at] }, { proxyProtocol: "v1" });
  const clients = await connectToAll(service);
  const wanted = clients.map(({ localPort }) => `PROXY TCP4 127.0.0.1 10.96.0.1 ${localPort} 80`);
  expect(headers.toSorted()).toEqual(wanted.toSorted());
});

test("each process resets connections without data after the idle limit", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] }, { tcp: { idleMs: 3_000, halfClosedMs: 0, drainMs: 0 } });
  const clients = await connectToAll(service);
  await until("all are reset", () => clients.every(({ destroyed }) => destroyed));
  await until("they are counted", () => service.runtime.relay.limit.open === 0);
  expect(service.ends()).toEqual({ idle: clients.length });
});

test("connections to a removed endpoint are reset after the drain time, in all processes", async () => {
  const [first, second] = [await echo(), await echo()];
  const service = await serve({ endpoints: [first.at] }, { tcp: { idleMs: 0, halfClosedMs: 0, drainMs: 300 } });
  const clients = await connectToAll(service);
  await service.apply({ endpoints: [second.at] });
  await until("all are reset", () => clients.every(({ destroyed }) => destroyed));
  await until("they are counted", () => service.runtime.relay.limit.open === 0);
  expect(service.ends()).toEqual({ drained: clients.length });
});
