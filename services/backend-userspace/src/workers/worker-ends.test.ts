import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import type { Socket } from "node:net";
import { dirname } from "node:path";
import { expect, test, vi } from "vitest";
import { familyPlan, key, type RunningService, servicePlan, TestEndpoint, until } from "../testing/running-service.ts";
import { closeAll, connectToAll, exchange, kill, listening, useWorkers } from "../testing/use-workers.ts";

vi.setConfig({ testTimeout: 120_000 });

// Workers that end, hang, or cannot be started.
const { echo, keep, serve, workerProgram } = useWorkers();

const traffic = (service: RunningService) => service.runtime.table.of("default/web");

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
    // `find` fails if a connection ends meanwhile, and still prints the others.
    const command = [`/proc/${pid}/fd`, "-maxdepth", "1", "-lname", "socket:*", "-printf", "%l\\n"];
    return spawnSync("find", command, { encoding: "utf8" })
      .stdout.split("\n")
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
  const endpoint = keep(
    await TestEndpoint.open((socket) => {
      let left = size;
      const fill = (): void => {
        while (left > 0) {
          left -= block.length;
          if (!socket.write(block)) return void socket.once("drain", fill);
        }
        socket.end();
      };
      socket.once("data", fill);
    }),
  );
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

test("a worker that hangs is killed, so that its connections end and its ports are free", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] });
  const clients = await connectToAll(service);
  const [victim] = service.runtime.relay.workers?.running ?? [];
  const { port } = service;
  kill(victim, "SIGSTOP");
  await expect.poll(() => service.ends().stopped, { timeout: 90_000, interval: 200 }).toBe(victim?.connections);
  await service.apply(undefined);
  await until("the port is free", () => listening(port) === "");
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
