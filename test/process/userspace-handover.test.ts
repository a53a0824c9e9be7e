import { createSocket } from "node:dgram";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { until } from "@kpng/backend-userspace/testing/running-service.ts";
import { expect, test } from "vitest";
import { oneService } from "./one-service.ts";
import { kpngMain, usePrograms } from "./programs.ts";

// Restarts of kpng-userspace with --handover, at local ports, without any rights.
const { at, start } = usePrograms();
const main = "services/backend-userspace/src/main.ts";

/** Starts a watcher and kpng-userspace for a Service whose endpoint echoes, and waits until it is served. */
async function startServing(target: AddressInfo) {
  const state = at("state.json");
  writeFileSync(state, JSON.stringify(oneService(target.port, { protocols: ["TCP", "UDP"] })));
  const api = `unix://${at("api.sock")}`;
  start(kpngMain, ["file", "-i", state, "to-api", "--listen", api]);
  const ports = ["--healthz-bind-address", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0"];
  const options = ["--api", api, "--node-name", "n1", "--state-dir", "none", "--map", "127.0.0.1", ...ports];
  const program = start(main, ["--handover", "--error-delay", "50ms", ...options]);
  const portsOf = (protocol: string): readonly number[] =>
    [...program.stdout().matchAll(new RegExp(` ${protocol} \\S+ -> 127\\.0\\.0\\.1:(\\d+)\\n`, "g"))].map(([, port]) =>
      Number(port),
    );
  await until("the mapping", () => portsOf("TCP").length === 1 && portsOf("UDP").length === 1);
  return { program, portsOf };
}

/** Opens connections one after the other, four at a time, until it is told to stop; returns how each ended. */
function connectWithoutEnd(port: number) {
  let isStopped = false;
  const results = { answered: 0, failures: [] as string[] };
  const worker = async (): Promise<void> => {
    while (!isStopped) {
      const socket = connect(port, "127.0.0.1");
      socket.end("question");
      const answer = await received(socket).catch((error: unknown) => String(error));
      if (answer === "question") results.answered++;
      else results.failures.push(answer);
    }
  };
  const done = Promise.all(Array.from({ length: 4 }, worker));
  return {
    results,
    stop: async () => {
      isStopped = true;
      await done;
      return results;
    },
  };
}

async function received(socket: Socket): Promise<string> {
  let text = "";
  for await (const data of socket) text += String(data);
  return text;
}

function childrenOf(pid: number | undefined): readonly number[] {
  const list = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
  return list === "" ? [] : list.split(" ").map(Number);
}

/** Returns the only child; never 0, which is the whole group for `process.kill`. */
function onlyChildOf(pid: number | undefined): number {
  const [child, ...others] = childrenOf(pid);
  if (child === undefined || others.length > 0) throw new Error(`process ${pid} has not one child: ${childrenOf(pid)}`);
  return child;
}

/** A server that sends back what it receives, for TCP and UDP at one port. */
async function echo() {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => undefined);
    socket.pipe(socket);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const target = server.address() as AddressInfo;
  const datagrams = createSocket("udp4", (data, from) => datagrams.send(data, from.port, from.address));
  datagrams.bind(target.port, "127.0.0.1");
  const close = async (): Promise<void> => {
    datagrams.close();
    await server[Symbol.asyncDispose]();
  };
  return { target, [Symbol.asyncDispose]: close };
}

test("a restart by SIGUSR2 refuses and breaks no connection, and ports stay the same", {
  timeout: 120_000,
}, async () => {
  await using endpoint = await echo();
  const { program, portsOf } = await startServing(endpoint.target);
  const [port = 0] = portsOf("TCP");
  const old = connect(port, "127.0.0.1");
  old.write("before");
  await once(old, "data");
  const load = connectWithoutEnd(port);
  for (let restart = 1; restart <= 2; restart++) {
    program.signal("SIGUSR2");
    const count = (): number => program.stderr().split("another process serves now").length - 1;
    await until("the handover", () => count() === restart);
    const { answered } = load.results;
    await until("connections after it", () => load.results.answered > answered + 20);
  }
  expect((await load.stop()).failures).toEqual([]);
  expect(portsOf("TCP")).toEqual([port, port, port]);
  expect(new Set(portsOf("UDP")).size).toBe(1);
  old.write("after");
  const [data] = await once(old, "data");
  expect(String(data)).toBe("after");
  old.destroy();
  await until("the end of the old processes", () => childrenOf(program.pid).length === 1);
  program.stop();
  expect(await program.ended).toBe(0);
});

test("SIGTERM ends the program, also when a restart has just begun", { timeout: 120_000 }, async () => {
  await using endpoint = await echo();
  const { program } = await startServing(endpoint.target);
  program.signal("SIGUSR2");
  program.stop();
  expect(await program.ended).toBe(0);
});

// What a restart without the keeper's care does, so that the load of these tests is known to notice it.
test("a process that is killed is started again, and serves at the same port; connections meanwhile are refused", {
  timeout: 120_000,
}, async () => {
  await using endpoint = await echo();
  const { program, portsOf } = await startServing(endpoint.target);
  const serving = onlyChildOf(program.pid);
  const [port = 0] = portsOf("TCP");
  const load = connectWithoutEnd(port);
  await until("connections", () => load.results.answered > 20);
  process.kill(serving, "SIGKILL");
  await until("the mapping", () => portsOf("TCP").length === 2);
  const { answered } = load.results;
  await until("connections after it", () => load.results.answered > answered + 20);
  const { failures } = await load.stop();
  expect(failures).toContainEqual(expect.stringContaining("ECONNREFUSED"));
  expect(portsOf("TCP")).toEqual([port, port]);
  expect(program.stderr()).toContain("starting it again");
});
