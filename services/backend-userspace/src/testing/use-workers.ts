import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect } from "vitest";
import { RunningService, type ServiceOptions, TestEndpoint, until } from "./running-service.ts";

/** A Service served by workers, for the tests of `workers/`. */
export interface WorkerTests {
  /** Serves with two workers, unless `given` says otherwise. */
  serve(options: ServiceOptions, given?: Parameters<typeof RunningService.open>[1]): Promise<RunningService>;
  /** Opens an endpoint that sends back what it receives. */
  echo(): Promise<TestEndpoint>;
  /** Creates a temporary folder. */
  folder(): string;
  /** Writes a program that runs a worker after some other code, which may use `folder`; returns its file. */
  workerProgram(before: string): string;
  /** Closes something after the test; returns it. */
  keep<One extends AsyncDisposable>(one: One): One;
}

/** Registers a hook that closes what a test has opened, the last first. */
export function useWorkers(): WorkerTests {
  const open: AsyncDisposable[] = [];
  afterEach(async () => {
    for (const one of open.splice(0).reverse()) await one[Symbol.asyncDispose]();
  });
  const keep: WorkerTests["keep"] = (one) => {
    open.push(one);
    return one;
  };
  const folder = (): string => {
    const path = mkdtempSync(join(tmpdir(), "kpng-worker-"));
    keep({ [Symbol.asyncDispose]: async () => rmSync(path, { recursive: true }) });
    return path;
  };
  return {
    keep,
    folder,
    echo: async () => keep(await TestEndpoint.open((socket) => socket.pipe(socket))),
    serve: async (options, given = {}) =>
      // On a busy machine, an attempt may take longer than the default, and the next one goes elsewhere.
      keep(await RunningService.open(options, { workers: 2, connectTimeoutMs: 30_000, ...given })),
    workerProgram: (before) => {
      const path = folder();
      const program = join(path, "program.mjs");
      const main = JSON.stringify(join(import.meta.dirname, "../main.ts"));
      writeFileSync(program, `const folder = ${JSON.stringify(path)};\n${before}\nawait import(${main});\n`);
      return program;
    },
  };
}

/** Sends a text and waits until it has come back. */
export async function exchange(client: Socket, text: string): Promise<void> {
  client.write(text);
  let received = "";
  while (received.length < text.length) received += String((await once(client, "data"))[0]);
  expect(received).toBe(text);
}

/** Opens connections until each process carries some; returns them all. */
export async function connectToAll(service: RunningService): Promise<Socket[]> {
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

/** Ends connections, and waits until none is counted. */
export async function closeAll(service: RunningService, clients: readonly Socket[]): Promise<void> {
  for (const client of clients) client.end();
  await until("all connections end", () => service.runtime.relay.limit.open === 0);
}

/** Sends a signal to a worker; not to 0, which is the whole process group. */
export function kill(worker: { readonly pid: number | undefined } | undefined, signal: NodeJS.Signals): void {
  if (worker?.pid === undefined) throw new Error(`no worker for ${signal}`);
  process.kill(worker.pid, signal);
}

/** Returns the line of `ss` about the socket that listens at a port; "" for none. */
export const listening = (port: number): string =>
  execFileSync("ss", ["-ltnH", `sport = :${port}`], { encoding: "utf8" }).trim();
