import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { startProgram } from "@kpng/backend-kit/testing/program.ts";
import { until } from "@kpng/backend-userspace/testing/running-service.ts";
import { oneService } from "../../process/one-service.ts";
import { startEndpoint } from "./carriers.ts";

// Kills processes of `kpng-userspace --handover --workers 2` in random order under traffic, and restarts it by SIGUSR2
// in between: `kills.ts SECONDS SEED`, default 120 s and a random seed. The exit status is 1 if a connection failed
// that was not open at the moment of a kill, or was refused while a process served, if a transfer that ended as
// complete lacks bytes, or if a connection is still counted at the end.

const seconds = Number(process.argv[2] ?? 120);
const seed = Number(process.argv[3] ?? Math.floor(Math.random() * 1e6));
const limitMs = 60_000;
const print = (text: string): void => void process.stdout.write(`${text}\n`);

let state = seed;
/** Returns a number from 0 up to `below`, by the generator mulberry32. */
function random(below: number): number {
  state = (state + 0x6d2b79f5) | 0;
  let value = Math.imul(state ^ (state >>> 15), 1 | state);
  value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
  return ((value ^ (value >>> 14)) >>> 0) % below;
}

type Action = "worker killed" | "main process killed" | "restart by SIGUSR2";

interface Event {
  readonly action: Action;
  readonly startMs: number;
  /** When all processes accepted connections again. */
  endMs: number;
}

interface Failure {
  readonly load: string;
  readonly reason: string;
  readonly startMs: number;
  readonly endMs: number;
}

const loads: readonly {
  readonly name: string;
  readonly says: string;
  readonly sends: number;
  readonly gets: number;
}[] = [
  { name: "short connection", says: "a", sends: 0, gets: 100 },
  { name: "download of 4 MB", says: "d4\n", sends: 0, gets: 4 * 1_048_576 },
  { name: "upload of 4 MB", says: "u", sends: 4 * 1_048_576, gets: 1 },
];

const events: Event[] = [];
const failures: Failure[] = [];
const succeeded = new Map<string, number>();
const block = Buffer.alloc(65_536);
let isStopped = false;

/** Plays a load once; resolves with "" or the reason why it failed. */
async function play({ says, sends, gets }: (typeof loads)[number], port: number): Promise<string> {
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  let reason = "";
  let received = 0;
  socket.setTimeout(limitMs, () => socket.destroy(new Error("no answer")));
  socket.on("error", (error: NodeJS.ErrnoException) => {
    reason = error.code ?? error.message;
  });
  socket.on("data", ({ length }) => {
    received += length;
  });
  const closed = new Promise<void>((done) => socket.once("close", () => done()));
  socket.write(says);
  for (let sent = 0; sent < sends && !socket.destroyed; sent += block.length) {
    if (!socket.write(block)) await Promise.race([once(socket, "drain").catch(() => undefined), closed]);
  }
  socket.end();
  await closed;
  return reason === "" && received !== gets ? `ended after ${received < gets ? "too few" : "too many"} bytes` : reason;
}

async function playAgainAndAgain(load: (typeof loads)[number], port: number): Promise<void> {
  while (!isStopped) {
    const startMs = performance.now();
    const reason = await play(load, port);
    if (reason === "") succeeded.set(load.name, (succeeded.get(load.name) ?? 0) + 1);
    else failures.push({ load: load.name, reason, startMs, endMs: performance.now() });
    // A refused connection fails at once.
    if (reason !== "") await sleep(20);
  }
}

function childrenOf(pid: number): readonly number[] {
  const path = `/proc/${pid}/task/${pid}/children`;
  return existsSync(path) ? readFileSync(path, "utf8").split(" ").filter(Boolean).map(Number) : [];
}

/** Whether a failure is what an event may do to a connection. */
function isExpected({ reason, startMs, endMs }: Failure): boolean {
  if (reason === "no answer" || reason.endsWith("too many bytes")) return false;
  return events.some((event) => {
    if (event.action === "restart by SIGUSR2") return false;
    // What the process had accepted is lost; after the main process, also what came before the next one served.
    const lastMs = event.action === "worker killed" ? event.startMs : event.endMs;
    const isOpen = startMs <= lastMs && endMs >= event.startMs;
    return isOpen && (event.action === "main process killed" || reason !== "ECONNREFUSED");
  });
}

const folder = mkdtempSync(join(tmpdir(), "kpng-kills-"));
const start = (main: string, args: readonly string[]) =>
  startProgram(pathToFileURL(resolve(import.meta.dirname, "../../..", main)), args);
const endpoint = await startEndpoint();
writeFileSync(join(folder, "state.json"), JSON.stringify(oneService(endpoint.port)));
const api = `unix://${join(folder, "api.sock")}`;
const watcher = start("services/cli/src/main.ts", [
  ...["file", "-i", join(folder, "state.json"), "to-api", "--listen", api],
]);
const metricsPort = 20_000 + (process.pid % 1_000);
const program = start("services/backend-userspace/src/main.ts", [
  ...["--handover", "--workers", "2", "--map", "127.0.0.1", "--local-ports", "21000-29999", "--error-delay", "50ms"],
  ...["--api", api, "--node-name", "n1", "--state-dir", "none", "--healthz-bind-address", "127.0.0.1:0"],
  ...["--metrics-bind-address", `127.0.0.1:${metricsPort}`],
]);
const mappings = (): readonly number[] =>
  [...program.stdout().matchAll(/ -> 127\.0\.0\.1:(\d+)\n/g)].map(([, port]) => Number(port));
const metric = async (name: string): Promise<number> => {
  const text = await fetch(`http://127.0.0.1:${metricsPort}/metrics`).then(
    (answer) => answer.text(),
    () => "",
  );
  return Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1]);
};
/** Waits until one process serves, with two workers that accept. */
const settled = async (): Promise<void> => {
  for (let count = 0; count < 3_000; count++) {
    const [serving, ...others] = childrenOf(program.pid);
    if (serving !== undefined && others.length === 0 && (await metric("kpng_userspace_workers")) === 2) return;
    await sleep(20);
  }
  throw new Error(`no two workers within a minute:\n${program.stderr()}`);
};

try {
  print(`seed ${seed}`);
  await until("the mapping", () => mappings().length === 1);
  const [port = 0] = mappings();
  await settled();
  const done = Promise.all(loads.flatMap((load) => [1, 2, 3, 4].map(() => playAgainAndAgain(load, port))));
  const endMs = performance.now() + seconds * 1_000;
  while (performance.now() < endMs) {
    await sleep(500 + random(1_500));
    const [serving] = childrenOf(program.pid);
    const workers = serving === undefined ? [] : childrenOf(serving);
    const action = (["worker killed", "worker killed", "main process killed", "restart by SIGUSR2"] as const)[
      random(4)
    ];
    const before = mappings().length;
    const event: Event = { action: action ?? "worker killed", startMs: performance.now(), endMs: Infinity };
    events.push(event);
    const victim = action === "worker killed" ? workers[random(workers.length)] : serving;
    // Number 0 would be the whole process group.
    if (victim === undefined) throw new Error(`${action}: no process`);
    if (action === "restart by SIGUSR2") process.kill(program.pid, "SIGUSR2");
    else process.kill(victim, "SIGKILL");
    if (action !== "worker killed") await until("the next process", () => mappings().length > before);
    event.endMs = performance.now();
    await settled();
  }
  isStopped = true;
  await done;
  let open = Number.NaN;
  for (let count = 0; count < 600 && open !== 0; count++) {
    open = await metric("kpng_userspace_open_connections");
    if (open !== 0) await sleep(50);
  }
  const count = (list: readonly string[]): string =>
    [...Map.groupBy(list, (one) => one)].map(([one, { length }]) => `${length} × ${one}`).join(", ");
  print(`events: ${count(events.map(({ action }) => action))}`);
  print(`succeeded: ${[...succeeded].map(([name, number]) => `${number} × ${name}`).join(", ")}`);
  const unexpected = failures.filter((failure) => !isExpected(failure));
  const named = (list: readonly Failure[]): string => count(list.map(({ load, reason }) => `${load}: ${reason}`));
  print(`failed at a kill, as expected: ${named(failures.filter(isExpected)) || "none"}`);
  print(`failed otherwise: ${named(unexpected) || "none"}`);
  print(`open connections at the end: ${open}; ports: ${[...new Set(mappings())].join(", ")}`);
  for (const { load, reason, startMs, endMs: failedMs } of unexpected.slice(0, 20)) {
    const near = events.map((event) => `${event.action} ${Math.round(event.startMs)}–${Math.round(event.endMs)}`);
    print(`${load} ${reason} ${Math.round(startMs)}–${Math.round(failedMs)}; ${near.join(", ")}`);
  }
  const isComplete = loads.every(({ name }) => (succeeded.get(name) ?? 0) > 0);
  if (unexpected.length > 0 || open !== 0 || new Set(mappings()).size > 1 || !isComplete) process.exitCode = 1;
} finally {
  program.stop();
  await program.ended;
  watcher.kill();
  await endpoint.stop();
  rmSync(folder, { recursive: true, force: true });
}
