import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { expect, test } from "vitest";
import { until } from "../../../../test/cluster/until.ts";
import { key, mapEntry, RunningService, readAll, TestEndpoint } from "../testing/running-service.ts";
import { SilentEndpoint } from "../testing/silent-endpoint.ts";

test("data after the client's end of data still reaches the client", async () => {
  await using endpoint = await TestEndpoint.open((socket) => {
    let text = "";
    socket.on("data", (data) => (text += String(data)));
    socket.on("end", () => socket.end(`got ${text}`));
  });
  await using service = await RunningService.open({ endpoints: [endpoint.at] });
  const client = await service.connect();
  client.end("question");
  expect(await readAll(client)).toBe("got question");
  await until("both sides are closed", () => service.ends().closed === 1);
  expect(service.runtime.table.of(key)).toMatchObject({ open: 0, bytesFromClients: 8, bytesToClients: 12 });
});

test("data after the endpoint's end of data still reaches the endpoint", async () => {
  const received = Promise.withResolvers<string>();
  await using endpoint = await TestEndpoint.open((socket) => {
    socket.end("hello");
    void readAll(socket).then(received.resolve, received.reject);
  });
  await using service = await RunningService.open({ endpoints: [endpoint.at] });
  const client = await service.connect();
  expect(await readAll(client)).toBe("hello");
  client.end("later");
  expect(await received.promise).toBe("later");
});

test("a reset by the endpoint resets the client", async () => {
  await using endpoint = await TestEndpoint.open((socket) => {
    socket.once("data", () => socket.resetAndDestroy());
  });
  await using service = await RunningService.open({ endpoints: [endpoint.at] });
  const client = await service.connect();
  client.write("x");
  await expect(readAll(client)).rejects.toMatchObject({ code: "ECONNRESET" });
  await until("it is counted", () => service.ends()["endpoint-reset"] === 1);
});

test("a reset by the client resets the endpoint", async () => {
  const error = Promise.withResolvers<NodeJS.ErrnoException>();
  await using endpoint = await TestEndpoint.open((socket) => {
    socket.on("error", error.resolve);
    socket.resume();
    socket.write("ready");
  });
  await using service = await RunningService.open({ endpoints: [endpoint.at] });
  const client = await service.connect();
  await once(client, "data");
  client.resetAndDestroy();
  expect(await error.promise).toMatchObject({ code: "ECONNRESET" });
  await until("it is counted", () => service.ends()["client-reset"] === 1);
});

test("a client that does not read holds back its own sender and no other connection", async () => {
  let sent = 0;
  const block = Buffer.alloc(256 * 1_024);
  await using endpoint = await TestEndpoint.open((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", (data) => {
      if (String(data) !== "flood") return void socket.end(data);
      const fill = (): void => {
        do sent += block.length;
        while (socket.write(block));
        socket.once("drain", fill);
      };
      fill();
    });
  });
  await using service = await RunningService.open({ endpoints: [endpoint.at] });
  const slow = await service.connect();
  slow.write("flood");
  slow.pause();
  // The sender stands still when the kernel's buffers are full.
  let before = -1;
  await until("the sender is held back", () => {
    const isSame = sent > 0 && sent === before;
    before = sent;
    return isSame;
  });
  for (let at = 0; at < 5; at++) {
    const client = await service.connect();
    client.write("echo");
    expect(await readAll(client)).toBe("echo");
  }
  const stalled = sent;
  // The buffers of four sockets in the kernel take tens of MiB; without backpressure it would be some GiB.
  expect(stalled).toBeLessThan(256 * 1_048_576);
  slow.resume();
  await until("the sender goes on when the client reads", () => sent > stalled + 4 * block.length);
  slow.destroy();
});

test("large transfers in both directions at once arrive complete and in order", async () => {
  await using endpoint = await TestEndpoint.open((socket) => socket.pipe(socket));
  await using service = await RunningService.open({ endpoints: [endpoint.at] });
  const client = await service.connect();
  const words = Uint32Array.from({ length: 4 * 1_024 * 1_024 }, (_, at) => at);
  const desired = Buffer.from(words.buffer);
  client.end(desired);
  expect((await buffer(client)).equals(desired)).toBe(true);
});

test("a client is reset when no endpoint accepts its connection", async () => {
  const endpoint = await TestEndpoint.open(() => undefined);
  const { at } = endpoint;
  await endpoint[Symbol.asyncDispose]();
  await using service = await RunningService.open({ endpoints: [at] });
  await expect(service.connect().then(readAll)).rejects.toMatchObject({ code: "ECONNRESET" });
  await until("it is counted", () => service.ends()["connect-failed"] === 1);
  expect(service.runtime.table.of(key)).toMatchObject({ open: 0, retries: 3 });
});

test.each([
  { what: "without data", limits: { idleMs: 100, halfClosedMs: 60_000 }, use: () => undefined },
  {
    what: "of which one side has ended",
    limits: { idleMs: 60_000, halfClosedMs: 100 },
    use: (client: Socket) => void client.end("question"),
  },
])("a connection $what is reset after its own idle limit", async ({ limits, use }) => {
  await using endpoint = await TestEndpoint.open((socket) => void socket.on("error", () => undefined).resume());
  await using service = await RunningService.open(
    { endpoints: [endpoint.at] },
    { tcp: { ...limits, drainMs: 60_000 } },
  );
  const startMs = performance.now();
  const client = await service.connect();
  use(client);
  await expect(readAll(client)).rejects.toMatchObject({ code: "ECONNRESET" });
  expect(performance.now() - startMs).toBeGreaterThan(99);
  await until("it is counted", () => service.ends().idle === 1);
});

test("a connection to a removed endpoint goes on until the drain limit, and new ones go elsewhere", async () => {
  const echo = (name: string) =>
    TestEndpoint.open((socket) => {
      socket.on("error", () => undefined);
      socket.on("data", (data) => socket.write(`${name}:${String(data)}`));
    });
  await using first = await echo("first");
  await using second = await echo("second");
  await using service = await RunningService.open(
    { endpoints: [first.at] },
    { tcp: { idleMs: 60_000, halfClosedMs: 60_000, drainMs: 300 } },
  );
  const old = await service.connect();
  const ask = async (client: Awaited<ReturnType<RunningService["connect"]>>): Promise<string> => {
    client.write("x");
    return String((await once(client, "data"))[0]);
  };
  expect(await ask(old)).toBe("first:x");
  await service.apply({ endpoints: [second.at] });
  expect(await ask(await service.connect())).toBe("second:x");
  const error = once(old, "error");
  expect(await error).toMatchObject([{ code: "ECONNRESET" }]);
  await until("it is counted", () => service.ends().drained === 1);
});

test("a connection of a deleted Service goes on", async () => {
  await using endpoint = await TestEndpoint.open((socket) => socket.on("data", (data) => socket.write(data)));
  await using service = await RunningService.open({ endpoints: [endpoint.at] });
  const client = await service.connect();
  client.write("before");
  await once(client, "data");
  const { port } = service;
  await service.apply(undefined);
  client.write("after");
  expect(String((await once(client, "data"))[0])).toBe("after");
  // Its port is free already.
  const server = createServer().listen(port, "127.0.0.1");
  await once(server, "listening");
  server.close();
  client.resetAndDestroy();
  await until("the connection is counted as ended", () => service.runtime.relay.limit.open === 0);
});

test("connections beyond a limit, here a client's half of a Service, are reset, and one that ends makes room", async () => {
  await using endpoint = await TestEndpoint.open((socket) => socket.write("hello"));
  await using service = await RunningService.open({ endpoints: [endpoint.at] }, { maxConnections: 8 });
  const clients = [await service.connect(), await service.connect()];
  await Promise.all(clients.map((client) => once(client, "data")));
  // The reset may arrive before the client knows that it is connected.
  const refused = service.connect().then(readAll);
  await expect(refused).rejects.toMatchObject({ code: "ECONNRESET" });
  expect(service.ends().limit).toBe(1);
  clients[0]?.resetAndDestroy();
  await until("a place is free", () => service.runtime.relay.limit.open < 2);
  const [data] = await once(await service.connect(), "data");
  expect(String(data)).toBe("hello");
});

test("all connections are reset when the process stops", async () => {
  await using endpoint = await TestEndpoint.open((socket) => socket.write("hello"));
  const service = await RunningService.open({ endpoints: [endpoint.at] });
  const client = await service.connect();
  await once(client, "data");
  const error = once(client, "error");
  await service.ruleSet.close();
  expect(await error).toMatchObject([{ code: "ECONNRESET" }]);
});

test("an endpoint that does not answer is followed by the next one after the time limit", async () => {
  await using silent = await SilentEndpoint.open();
  await using good = await TestEndpoint.open((socket) => socket.end("good"));
  await using service = await RunningService.open({ endpoints: [silent.at, good.at] });
  for (let count = 0; count < 4; count++) expect(await readAll(await service.connect())).toBe("good");
  expect(service.runtime.table.of(key).retries).toBeGreaterThan(0);
});

test("the time limit of an attempt to connect is twice that of the one before", async () => {
  await using silent = await SilentEndpoint.open();
  await using service = await RunningService.open({ endpoints: [silent.at] });
  const startMs = performance.now();
  const client = await service.connect();
  const ended = readAll(client).catch(() => undefined);
  const timesMs: number[] = [];
  await until("two attempts have failed", () => {
    const { retries } = service.runtime.table.of(key);
    while (timesMs.length < retries) timesMs.push(performance.now() - startMs);
    return timesMs.length >= 2;
  });
  client.resetAndDestroy();
  await ended;
  // A busy machine makes each later, and nothing makes it earlier. Timers of Node.js may be 1 ms early.
  expect(timesMs[0]).toBeGreaterThanOrEqual(248);
  expect(timesMs[1]).toBeGreaterThanOrEqual(746);
});

test.each(["127.0.0.1", "0.0.0.0"])(
  "an endpoint at which this process listens itself, at %s, is left out, and counted if there is no other",
  async (address) => {
    await using endpoint = await TestEndpoint.open((socket) => socket.end("hello"));
    await using service = new RunningService({ maxConnections: 50 }, mapEntry(address));
    await service.apply({ endpoints: [endpoint.at] });
    const own = { address: "127.0.0.1", port: service.port };
    await service.apply({ endpoints: [own, endpoint.at] });
    for (let count = 0; count < 4; count++) expect(await readAll(await service.connect())).toBe("hello");
    await service.apply({ endpoints: [own] });
    await expect(service.connect().then(readAll)).rejects.toMatchObject({ code: "ECONNRESET" });
    await until("it is counted", () => service.ends().loop === 1);
    expect(service.ends().limit).toBeUndefined();
    const lines = service.log.lines.filter(({ msg }) => msg === "endpoint left out");
    expect(lines).toEqual([expect.objectContaining({ service: key, endpoint: `127.0.0.1:${own.port}` })]);
  },
);

test("each of many slow clients gets exactly its own data", async () => {
  // Each word contains the number of the client and its own number.
  const words = 2 * 1_048_576;
  const dataFor = (client: number): Buffer =>
    Buffer.from(Uint32Array.from({ length: words }, (_, at) => client * words + at).buffer);
  await using endpoint = await TestEndpoint.open((socket) => {
    socket.once("data", ([client = 0]) => socket.end(dataFor(client)));
  });
  await using service = await RunningService.open({ endpoints: [endpoint.at] });
  const clients = await Promise.all(Array.from({ length: 10 }, () => service.connect()));
  for (const [number, client] of clients.entries()) client.pause().write(Uint8Array.of(number));
  let before = -1;
  await until("every client's next piece is waiting", () => {
    const { bytesToClients } = service.runtime.table.of(key);
    const isSame = bytesToClients > 0 && bytesToClients === before;
    before = bytesToClients;
    return isSame;
  });
  const received = await Promise.all(clients.map((client) => buffer(client)));
  expect(received.map((data, number) => data.equals(dataFor(number)))).toEqual(clients.map(() => true));
});
