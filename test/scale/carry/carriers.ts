import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { readOpenFilesLimit } from "@kpng/backend-userspace/traffic/service-traffic.ts";
import { serviceList } from "../../process/service-list.ts";

/** A program that carries connections to the endpoint, or the endpoint itself. */
export interface Carrier {
  readonly name: string;
  readonly port: number;
  readonly pid: number;
  stop(): Promise<void>;
}

/** Starts the endpoint. */
export async function startEndpoint(): Promise<Carrier> {
  const child = start([process.execPath, join(import.meta.dirname, "endpoint.ts")]);
  return carrier("direct", child, Number(await firstLine(child, /(\d+)/)));
}

/** Starts kpng-userspace with a watcher in the same process, at a local port. */
export async function startKpng(target: number): Promise<Carrier> {
  const folder = mkdtempSync(join(tmpdir(), "kpng-carry-"));
  writeFileSync(join(folder, "state.json"), JSON.stringify(serviceList({ target })));
  const main = join(import.meta.dirname, "../../../services/cli/src/main.ts");
  const sink = ["to-local", "to-userspace", "--node-name", "n1", "--state-dir", "none", "--map", "127.0.0.1"];
  // One Service may have half of them, and one client half of those.
  const limits = ["--max-connections", String(4 * maxConnections())];
  const child = start([process.execPath, main, "file", "-i", folder, ...sink, ...limits]);
  return carrier("kpng-userspace", child, Number(await firstLine(child, /-> 127\.0\.0\.1:(\d+)/)));
}

/** Starts HAProxy with one thread, as a TCP proxy with default buffers. */
export async function startHaproxy(target: number): Promise<Carrier> {
  const folder = mkdtempSync(join(tmpdir(), "kpng-carry-"));
  const port = 20_000 + (process.pid % 5_000);
  const config = join(folder, "haproxy.cfg");
  const lines = [
    "global",
    "  nbthread 1",
    `  maxconn ${maxConnections()}`,
    "defaults",
    "  mode tcp",
    "  timeout connect 5s",
    "  timeout client 1h",
    "  timeout server 1h",
    "listen web",
    `  bind 127.0.0.1:${port}`,
    `  server one 127.0.0.1:${target}`,
  ];
  writeFileSync(config, `${lines.join("\n")}\n`);
  const child = start(["haproxy", "-db", "-f", config]);
  for (let attempt = 0; attempt < 200 && !(await isListening(port)); attempt++) await sleep(50);
  return carrier("haproxy", child, port);
}

/** As many pairs of connections as the limit of open files allows. */
export const maxConnections = (): number => Math.floor((readOpenFilesLimit() - 1_000) / 2);

function start(command: readonly string[]): ChildProcess {
  const [program = "", ...args] = command;
  return spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
}

function carrier(name: string, child: ChildProcess, port: number): Carrier {
  return {
    name,
    port,
    pid: child.pid ?? 0,
    stop: async () => {
      const ended = once(child, "close");
      child.kill("SIGKILL");
      await ended;
    },
  };
}

async function firstLine(child: ChildProcess, pattern: RegExp): Promise<string> {
  let text = "";
  for await (const data of child.stdout ?? []) {
    text += String(data);
    const found = pattern.exec(text)?.[1];
    if (found === undefined) continue;
    child.stdout?.resume();
    return found;
  }
  throw new Error(`the program ended: ${text}`);
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => {
      socket.destroy();
      resolve(true);
    });
    socket.on("error", () => resolve(false));
  });
}
