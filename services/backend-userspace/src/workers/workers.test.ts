import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import {
  familyPlan,
  key,
  RunningService,
  readAll,
  type ServiceOptions,
  servicePlan,
  TestEndpoint,
  until,
} from "../testing/running-service.ts";
import { SilentEndpoint } from "../testing/silent-endpoint.ts";
import { serviceCountsOf } from "../traffic/service-counts.ts";

vi.setConfig({ testTimeout: 120_000 });

// Workers (`--workers 2`): two processes beside this one.
const open: AsyncDisposable[] = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one[Symbol.asyncDispose]();
});

async function echo(): Promise<TestEndpoint> {
  const endpoint = await TestEndpoint.open((socket) => socket.pipe(socket));
  open.push(endpoint);
  return endpoint;
}

async function serve(options: ServiceOptions, given: Parameters<typeof RunningService.open>[1] = {}) {
  // On a busy machine, an attempt may take longer than the default, and the next one goes elsewhere.
  const service = await RunningService.open(options, { workers: 2, connectTimeoutMs: 30_000, ...given });
  open.push(service);
  return service;
}

/** Sends a text and waits until it has come back. */
async function exchange(client: Socket, text: string): Promise<void> {
  client.write(text);
  let received = "";
  while (received.length < text.length) received += String((await once(client, "data"))[0]);
  expect(received).toBe(text);
}

/** Opens connections until each process carries some; returns them all. */
async function connectToAll(service: RunningService): Promise<Socket[]> {
  const clients: Socket[] = [];
  const { workers, open: own } = service.runtime.relay;
  const isEachUsed = (): boolean => {
    const running = workers?.running ?? [];
    return running.length === 2 && own.size > 0 && running.every(({ connections }) => connections > 0);
  };
  for (const deadlineMs = performance.now() + 30_000; !isEachUsed() && performance.now() < deadlineMs; ) {
    const some = await Promise.all(Array.from({ length: 12 }, () => service.connect()));
    await Promise.all(some.map((client) => exchange(client, "hello")));
    clients.push(...some);
  }
  expect(isEachUsed()).toBe(true);
  return clients;
}

async function closeAll(service: RunningService, clients: readonly Socket[]): Promise<void> {
  for (const client of clients) client.end();
  await until("all connections end", () => service.runtime.relay.limit.open === 0);
}

/** Sends a signal to a worker; not to 0, which is the whole process group. */
function kill(worker: { readonly pid: number | undefined } | undefined, signal: NodeJS.Signals): void {
  if (worker?.pid === undefined) throw new Error(`no worker for ${signal}`);
  process.kill(worker.pid, signal);
}

/** Returns the line of `ss` about the socket that listens at a port; "" for none. */
const listening = (port: number): string =>
  execFileSync("ss", ["-ltnH", `sport = :${port}`], { encoding: "utf8" }).trim();

const traffic = (service: RunningService) => service.runtime.table.of("default/web");

test("connections spread over all processes, and metrics, reports and access log have them all", async () => {
  const folder = mkdtempSync(join(tmpdir(), "kpng-worker-"));
  open.push({ [Symbol.asyncDispose]: async () => rmSync(folder, { recursive: true }) });
  const accessLog = join(folder, "access.log");
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] }, { accessLog });
  const clients = await connectToAll(service);
  const addresses = clients.map(({ localPort }) => `127.0.0.1:${localPort}`);
  await closeAll(service, clients);
  const count = clients.length;
  expect(service.ends()).toEqual({ closed: count });
  const reported = { connections: count, bytesFromClients: 5 * count, bytesToClients: 5 * count };
  expect(serviceCountsOf(service.runtime.table)).toMatchObject([[key, reported]]);
  const metrics = await service.metrics.metrics();
  for (const line of [
    `kpng_userspace_connections_total{service="${key}"} ${count}`,
    `kpng_userspace_connections_ended_total{service="${key}",end="closed"} ${count}`,
    `kpng_userspace_received_bytes_total{service="${key}"} ${5 * count}`,
    `kpng_userspace_sent_bytes_total{service="${key}"} ${5 * count}`,
    "kpng_userspace_workers 2",
    "kpng_userspace_worker_exits_total 0",
  ]) {
    expect(metrics.split("\n")).toContain(line);
  }
  const lines = () => readFileSync(accessLog, "utf8").trim().split("\n");
  await until("the access log", () => lines().length === count);
  const records = lines().map((line) => JSON.parse(line));
  expect(new Set(records.map(({ client }) => client))).toEqual(new Set(addresses));
  const { address, port } = endpoint.at;
  const same = { service: key, protocol: "TCP", endpoint: `${address}:${port}`, end: "closed" };
  for (const record of records) expect(record).toMatchObject({ ...same, bytesFromClient: 5, bytesToClient: 5 });
});

test("the backlog of a shared socket stays 4 096", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] });
  await connectToAll(service);
  expect(listening(service.port).split(/\s+/)[2]).toBe("4096");
});

test("bytes of open connections are counted each second", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] });
  const { length } = await connectToAll(service);
  await until("the report", () => traffic(service).bytesToClients === 5 * length);
});

test("a client with affinity stays at its endpoint, whichever process accepts", async () => {
  const endpoints = [await echo(), await echo(), await echo()];
  const service = await serve({ endpoints: endpoints.map(({ at }) => at), affinitySeconds: 60 });
  const clients = await connectToAll(service);
  expect(endpoints.map(({ sockets }) => sockets.size).toSorted((a, b) => b - a)).toEqual([clients.length, 0, 0]);
});

test("least connections are balanced over all processes", async () => {
  const endpoints = [await echo(), await echo(), await echo()];
  const service = await serve({ endpoints: endpoints.map(({ at }) => at) }, { algorithm: "least-connections" });
  const clients = await connectToAll(service);
  const third = clients.length / 3;
  expect(endpoints.map(({ sockets }) => sockets.size)).toEqual([third, third, third]);
});

test("the limit of connections is that of all processes", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] });
  await closeAll(service, await connectToAll(service));
  service.runtime.relay.limit.limits = { total: 20, perService: 20 };
  const clients = Array.from({ length: 100 }, () => connect(service.port, "127.0.0.1").on("error", () => undefined));
  await until("80 resets", () => clients.filter(({ destroyed }) => destroyed).length === 80);
  await until("20 connections", () => endpoint.sockets.size === 20);
  expect(service.ends().limit).toBe(80);
});

test("a worker that is killed loses its connections only, and its successor gets every listener", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] });
  const [port] = servicePlan({ endpoints: [endpoint.at] }).ports;
  const ports = [80, 81, 82].map((number) => ({
    ...port,
    name: `${key}:${number}`,
    frontends: port?.frontends.map((one) => ({ ...one, port: number })),
  }));
  const plan = { ...servicePlan({ endpoints: [] }), ports } as ReturnType<typeof servicePlan>;
  await service.ruleSet.sync(familyPlan(new Map([[key, plan]])), "all", { committing: () => undefined });
  const clients = await connectToAll(service);
  const { workers, limit } = service.runtime.relay;
  const sockets = (pid = 0): string[] => {
    const inodes = readFileSync("/proc/net/tcp", "utf8").matchAll(/ 0A (?:\S+ +){5}(\d+) /g);
    const listening = new Set([...inodes].map(([, inode]) => `socket:[${inode}]`));
    const links = execFileSync("find", [`/proc/${pid}/fd`, "-maxdepth", "1", "-lname", "socket:*", "-printf", "%l\\n"]);
    return String(links)
      .split("\n")
      .filter((link) => listening.has(link))
      .toSorted();
  };
  const own = sockets(process.pid).filter((one) => sockets(workers?.running[0]?.pid).includes(one));
  expect(own).toHaveLength(3);
  const [victim] = workers?.running ?? [];
  for (const client of clients) client.on("end", () => client.destroy());
  kill(victim, "SIGKILL");
  const lost = victim?.connections ?? 0;
  await until("its connections end", () => clients.filter(({ destroyed }) => destroyed).length === lost);
  const rest = clients.filter(({ destroyed }) => !destroyed);
  await Promise.all(rest.map((client) => exchange(client, "still here")));
  await until("they are counted", () => limit.open === rest.length);
  expect(service.ends()).toEqual({ stopped: lost });
  expect(await service.metrics.metrics()).toContain("kpng_userspace_worker_exits_total 1");
  expect(service.log.lines).toContainEqual(
    expect.objectContaining({ msg: expect.stringContaining("a worker has ended"), connections: lost }),
  );
  await until("another worker", () => workers?.running.length === 2);
  const successor = workers?.running.find(({ connections }) => connections === 0)?.pid;
  expect(successor).not.toBe(victim?.pid);
  await until("its listeners", () => sockets(successor).length === 3);
  expect(sockets(successor)).toEqual(own);
  await connectToAll(service);
});

test("of transfers in progress, only those of a killed worker end early", async () => {
  const size = 64 * 1_048_576;
  const block = Buffer.alloc(1_048_576);
  const endpoint = await TestEndpoint.open((socket) => {
    let left = size;
    const fill = (): void => {
      while (left > 0) {
        left -= block.length;
        if (!socket.write(block)) return void socket.once("drain", fill);
      }
      socket.end();
    };
    socket.once("data", fill);
  });
  open.push(endpoint);
  const service = await serve({ endpoints: [endpoint.at] });
  const { workers, limit, open: own } = service.runtime.relay;
  const transfers: { readonly client: Socket; bytes: number; end: string }[] = [];
  const start = async (): Promise<void> => {
    const client = await service.connect();
    const transfer = { client, bytes: 0, end: "" };
    transfers.push(transfer);
    client.once("error", ({ code = "" }: NodeJS.ErrnoException) => {
      transfer.end ||= code;
    });
    client.once("end", () => {
      transfer.end ||= "end";
      client.end();
    });
    client.on("data", ({ length }) => {
      transfer.bytes += length;
    });
    // The transfer stays in progress until the client reads on.
    client.once("data", () => client.pause());
    client.write("go");
    await once(client, "data");
  };
  const isEachUsed = (): boolean =>
    own.size > 0 && (workers?.running ?? []).every(({ connections }) => connections > 0);
  await until("the workers", () => workers?.running.length === 2);
  while (!isEachUsed()) await Promise.all(Array.from({ length: 6 }, start));
  const [victim] = workers?.running ?? [];
  kill(victim, "SIGKILL");
  for (const { client } of transfers) client.resume();
  await until("all have ended", () => transfers.every(({ end }) => end !== ""));
  const complete = transfers.filter(({ bytes }) => bytes === size);
  expect(transfers.length - complete.length).toBe(victim?.connections);
  expect(new Set(complete.map(({ end }) => end))).toEqual(new Set(["end"]));
  await until("all places are free", () => limit.open === 0);
  expect(service.ends()).toEqual({ stopped: victim?.connections, closed: complete.length });
});

/** Writes a program that runs a worker after some other code; returns its file. */
function workerProgram(before: string): string {
  const folder = mkdtempSync(join(tmpdir(), "kpng-worker-"));
  open.push({ [Symbol.asyncDispose]: async () => rmSync(folder, { recursive: true }) });
  const program = join(folder, "program.mjs");
  const main = JSON.stringify(join(import.meta.dirname, "../main.ts"));
  writeFileSync(program, `const folder = ${JSON.stringify(folder)};\n${before}\nawait import(${main});\n`);
  return program;
}

test("a worker that ends by an error resets its connections, so that no client takes the end for complete", async () => {
  const endpoint = await echo();
  const program = workerProgram('process.on("SIGUSR2", () => { throw new Error("a test breaks this worker"); });');
  const service = await serve({ endpoints: [endpoint.at] }, { workerProgram: program });
  const clients = await connectToAll(service);
  const ends: string[] = [];
  for (const client of clients) {
    client.once("error", ({ code = "" }: NodeJS.ErrnoException) => ends.push(code));
    client.once("end", () => ends.push("end"));
  }
  const [victim] = service.runtime.relay.workers?.running ?? [];
  kill(victim, "SIGUSR2");
  await until("its connections end", () => ends.length === victim?.connections);
  expect(new Set(ends)).toEqual(new Set(["ECONNRESET"]));
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

test("data after the client's end of data reaches the client, whichever process accepts", async () => {
  const endpoint = await TestEndpoint.open((socket) => {
    let text = "";
    socket.on("data", (data) => {
      text += String(data);
      if (text === "hello") socket.write(text);
    });
    socket.on("end", () => socket.end(`got ${text}`));
  });
  open.push(endpoint);
  const service = await serve({ endpoints: [endpoint.at] });
  const clients = await connectToAll(service);
  for (const client of clients) client.end("question");
  expect(new Set(await Promise.all(clients.map(readAll)))).toEqual(new Set(["got helloquestion"]));
});

test("no process reads from a client before the endpoint is connected", async () => {
  const silent = await SilentEndpoint.open();
  open.push(silent);
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
  const endpoint = await TestEndpoint.open((socket) => {
    let text = "";
    socket.on("data", (data) => {
      text += String(data);
      const [header = "", rest = ""] = text.split("\r\n");
      if (rest !== "hello") return;
      headers.push(header);
      socket.write(rest);
    });
  });
  const headers: string[] = [];
  open.push(endpoint);
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

test("a client that the policy refuses is reset, whichever process accepts, and is counted", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] });
  await closeAll(service, await connectToAll(service));
  const before = service.ends().closed ?? 0;
  const balance = { kind: "balance", set: "cluster", isMasqueraded: false } as const;
  const routes = { pod: balance, node: { kind: "drop" }, outside: { kind: "drop" } } as const;
  await service.apply({ endpoints: [endpoint.at], routes });
  const clients = Array.from({ length: 60 }, () => connect(service.port, "127.0.0.1").on("error", () => undefined));
  await until("all are reset", () => clients.every(({ destroyed }) => destroyed));
  expect(service.ends()).toEqual({ closed: before, policy: 60 });
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

test("an endpoint that refuses is followed by the next one, whichever process connects", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at, { address: "127.0.0.1", port: 1 }] });
  const { length } = await connectToAll(service);
  expect(traffic(service).retries).toBeGreaterThanOrEqual(Math.floor(length / 2) - 1);
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

test("a worker that hangs is killed when a listener is closed, so that its port is free", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] });
  const clients = await connectToAll(service);
  const [victim] = service.runtime.relay.workers?.running ?? [];
  const { port } = service;
  kill(victim, "SIGSTOP");
  await service.apply(undefined);
  expect(listening(port)).not.toBe("");
  await expect.poll(() => listening(port), { timeout: 90_000, interval: 200 }).toBe("");
  await until("its connections end", () => service.ends().stopped === victim?.connections);
  expect(service.log.lines).toContainEqual(
    expect.objectContaining({ msg: expect.stringContaining("does not answer"), pid: victim?.pid }),
  );
  await closeAll(service, clients);
});

test("messages that arrive after a worker's exit are ignored, so that no connection stays counted", async () => {
  const late = JSON.stringify({ kind: "accepted", listener: 1, id: 1, address: "192.0.2.7", port: 1 });
  // The first worker ends; another process holds its channel, and writes to it after that.
  const program = workerProgram(`import { spawn } from "node:child_process";
    import { existsSync, writeFileSync } from "node:fs";
    if (!existsSync(folder + "/first")) {
      writeFileSync(folder + "/first", "");
      const wait = "while kill -0 " + process.pid + "; do sleep 0.1; done; sleep 1; ";
      const command = wait + "echo '" + ${JSON.stringify(late)} + "' >&3; touch " + folder + "/sent";
      const stdio = ["ignore", "ignore", "ignore", process.channel.fd];
      spawn("sh", ["-c", command], { stdio, detached: true });
      process.exit();
    }`);
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] }, { workerProgram: program, workers: 1 });
  await until("the late message", () => readdirSync(dirname(program)).includes("sent"));
  await until("another worker", () => service.runtime.relay.workers?.running.length === 1);
  const client = await service.connect();
  await exchange(client, "hello");
  expect([service.runtime.relay.limit.open, traffic(service).total]).toEqual([1, 1]);
  await closeAll(service, [client]);
});

test("workers that cannot be started are tried again, while this process serves", async () => {
  const endpoint = await echo();
  // Node.js throws for it, as it does for lack of memory.
  const service = await serve({ endpoints: [endpoint.at] }, { workerProgram: "not\0a file" });
  const client = await service.connect();
  await exchange(client, "hello");
  const failures = () => service.log.lines.filter(({ msg }) => String(msg).includes("could not be started"));
  await until("another attempt of both", () => failures().length >= 4);
  await closeAll(service, [client]);
});
