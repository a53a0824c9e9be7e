import { spawnSync } from "node:child_process";
import { statSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { temporaryFolder } from "../testing/temporary-folder.ts";
import { listenOnSocket } from "./listen.ts";

const socketPath = (): string => join(temporaryFolder(), "api.sock");

test("others may not connect at any time, also just after the socket was made", async () => {
  const path = socketPath();
  const server = createServer();
  onTestFinished(() => void server.close());
  const modes: number[] = [];
  const { listen } = server;
  server.listen = ((...args: Parameters<typeof listen>) => {
    const result = listen.apply(server, args);
    modes.push(statSync(path).mode & 0o777);
    return result;
  }) as typeof listen;
  await listenOnSocket(server, path);
  expect([...modes, statSync(path).mode & 0o777]).toEqual([0o660, 0o660]);
});

test("a file that is not a socket stays", async () => {
  const path = socketPath();
  await writeFile(path, "data");
  await expect(listenOnSocket(createServer(), path)).rejects.toThrow("the path is a file that is not a socket");
});

test("the socket of a process that was killed is replaced", async () => {
  const path = socketPath();
  const script = `require("net").createServer().listen("${path}", () => process.kill(process.pid, "SIGKILL"))`;
  spawnSync(process.execPath, ["--eval", script]);
  expect(statSync(path).isSocket()).toBe(true);
  const server = createServer();
  onTestFinished(() => void server.close());
  await listenOnSocket(server, path);
});

test("a socket that another server serves stays", async () => {
  const path = socketPath();
  const first = createServer();
  onTestFinished(() => void first.close());
  await listenOnSocket(first, path);
  await expect(listenOnSocket(createServer(), path)).rejects.toThrow("another process listens on it");
});
