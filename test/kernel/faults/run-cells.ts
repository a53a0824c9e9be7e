// Test program that runs in network and mount namespaces of its own, as one machine: for each cell of a fault matrix it
// brings the kernel and the watcher into a state, runs the backend in this process, and prints as a line of JSON which
// endpoint answers and whether health is good: `run-cells.ts SUBJECT CELLS`. `describe-faults.ts` starts it and knows
// what is right.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ProxyHealth } from "@kpng/backend-kit/observe/proxy-health.ts";
import { type Answer, inTurn, silence, startFakeWatcher } from "@kpng/backend-kit/testing/fake-watcher.ts";
import { putEndpoint, putNode, reset, sync } from "@kpng/backend-kit/testing/ops.ts";
import { putView } from "@kpng/backend-kit/testing/view-ops.ts";
import { endpoint, service } from "@kpng/model/testing/views.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { Registry } from "prom-client";
import type { CellRun, FaultResult } from "./describe-faults.ts";
import { type FaultCell, type FaultSubject, type FaultSubjectName, faultSubjects } from "./fault-subject.ts";

const [, , name = "iptables", cellsText = "[]"] = process.argv;
const subject: FaultSubject = faultSubjects[name as FaultSubjectName];

/** An address of the machine, so that a connection is refused at once, and not lost, if no rule redirects it. */
const clusterIP = "10.96.0.10";
const [older, newer] = ["10.0.1.1", "10.0.1.2"];
const folder = mkdtempSync(join(tmpdir(), "kpng-faults-"));
const bootId = join(folder, "boot-id");
const sh = (script: string): string =>
  execFileSync("sh", ["-ec", script], { encoding: "utf8", env: { ...process.env, FOLDER: folder } });

let boots = 0;
const reboot = (): void => writeFileSync(bootId, `00000000-0000-0000-0000-${String(++boots).padStart(12, "0")}\n`);
reboot();
sh(`ip link set lo up
for a in ${older} ${newer} ${clusterIP}; do ip addr add $a/32 dev lo; done
mount --bind ${bootId} /proc/sys/kernel/random/boot_id`);
for (const host of [older, newer]) {
  await new Promise<void>((resolve) => {
    createServer((socket) => socket.on("error", () => undefined).end(host)).listen(80, host, resolve);
  });
}

/** Errors of a connection that say that there is no endpoint. Silence does not: the machine may be slow. */
const refusals: readonly string[] = ["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH"];

/** Returns the endpoint that answers at the cluster IP; "" if the connection is refused; otherwise what happened. */
function reached(): Promise<string> {
  return new Promise((resolve) => {
    let text = "";
    const socket = connect({ host: clusterIP, port: 80, timeout: 5_000 });
    socket.setEncoding("utf8").on("data", (data: string) => (text += data));
    socket.on("timeout", () => {
      text += "(no answer)";
      socket.destroy();
    });
    socket.on("error", ({ code = "" }: NodeJS.ErrnoException) => {
      text += refusals.includes(code) ? "" : `(${code})`;
    });
    socket.once("close", () => resolve(text));
  });
}

const web = (address: string) =>
  service("a/web", { ips: [clusterIP], endpoints: [endpoint(address, { ports: [{ name: "", port: 80 }] })] });

const sends = (address: string, instance: string): Answer =>
  inTurn([reset, putNode("n1"), ...putView(web(address)), sync(1n, instance)]);

const watchers: Readonly<Record<FaultCell["watcher"], Answer | undefined>> = {
  away: undefined,
  restarted: sends(newer, "restarted"),
  stale: sends(older, "stale"),
  // An endpoint without its Service.
  hostile: inTurn([reset, putEndpoint("a/none/x", "10.0.1.9"), sync(9n, "hostile")]),
};

interface Backend extends AsyncDisposable {
  readonly proxyHealth: ProxyHealth;
  /** Number of drift checks that compared rules. */
  checkCount(): Promise<number>;
  /** Resolves when a stream has failed. */
  hasLost(): Promise<void>;
}

async function startBackend(api: string, state: string): Promise<Backend> {
  const [health, metrics, stop] = [new Health(), new Registry(), new AbortController()];
  const proxyHealth = new ProxyHealth({ lateMs: 1_000 });
  const options = { ...subject.options, stateDir: state, iptablesSyncPeriod: 100, nftablesSyncPeriod: 100 };
  const transport = dial({ api });
  const context = { transport, nodeName: "n1", serviceProxyName: "", errorDelayMs: 50, isOnce: false };
  let lines = "";
  const log = createLog("info", (line) => (lines += line));
  const task = subject.backend.makeTask(options, { ...context, log, health, metrics, proxyHealth });
  const ended = task.run(stop.signal);
  const checkCount = async (): Promise<number> => {
    const text = await metrics.metrics();
    return Number(/^kpng_backend_drift_checks_total\{result="ok"\} (\d+)/m.exec(text)?.[1] ?? 0);
  };
  return {
    proxyHealth,
    checkCount,
    hasLost: () => until("the loss of the stream", async () => lines.includes("stream lost")),
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await ended;
    },
  };
}

/** How long to wait for an event on a busy machine, in milliseconds; a guest is slower than that. */
const patienceMs = Number(process.env.KPNG_PATIENCE_MS ?? 30_000);

const pause = (): Promise<void> => waitMs(20, new AbortController().signal);

async function until(what: string, isDone: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + patienceMs;
  while (!(await isDone())) {
    if (Date.now() > deadline) throw new Error(`${what} did not happen`);
    await pause();
  }
}

/** Returns the result of a cell as soon as it is the expected one, or what it is when patience ends. */
async function settle({ wanted, isHealthy }: FaultCell, isOk: () => boolean): Promise<FaultResult> {
  const deadline = Date.now() + patienceMs;
  for (;;) {
    const seen = { reached: await reached(), isHealthy: isOk() };
    if ((seen.reached === wanted && seen.isHealthy === isHealthy) || Date.now() > deadline) return seen;
    await pause();
  }
}

/** Leaves what an earlier run leaves: rules that lead to an endpoint, and a saved view. */
async function runBefore(address: string, state: string): Promise<void> {
  await using watcher = await startFakeWatcher(sends(address, "before"));
  await using _ = await startBackend(watcher.address, state);
  await until(`${address} answers`, async () => (await reached()) === address);
}

async function runCell(cell: FaultCell): Promise<FaultResult> {
  const { phase, watcher, rules, wanted, isHealthy } = cell;
  const state = mkdtempSync(join(folder, "state-"));
  sh(subject.removeRules);
  if (phase === "restart" || phase === "reboot") await runBefore(newer, state);
  if (phase === "reboot") {
    reboot();
    sh(subject.removeRules);
    // Another program restores rules that it saved long ago.
    if (rules !== "absent") await runBefore(older, mkdtempSync(join(folder, "state-")));
    reboot();
  }
  let answer: Answer = phase === "running" ? sends(newer, "before") : (watchers[watcher] ?? silence);
  await using played = await startFakeWatcher((request) => answer(request));
  if (phase !== "running") sh(subject.make[rules] ?? "true");
  if (phase !== "running" && watcher === "away") await played[Symbol.asyncDispose]();
  await using backend = await startBackend(played.address, state);
  let checked = 0;
  if (phase === "running") {
    await until("the first sync", async () => (await reached()) === newer);
    answer = watchers[watcher] ?? silence;
    if (watcher === "away") await played[Symbol.asyncDispose]();
    else played.breakConnections();
    sh(subject.make[rules] ?? "true");
    checked = await backend.checkCount();
  }
  const isOk = (): boolean => backend.proxyHealth.healthz().isOk;
  if (phase === "start" && wanted === "") {
    // There is no view, so nothing is checked.
    await backend.hasLost();
  } else if (isHealthy) {
    await until("a drift check", async () => (await backend.checkCount()) > checked);
  } else {
    await until("the damage is reported", async () => !isOk());
  }
  // Awaited here: the backend runs until this function returns.
  return await settle(cell, isOk);
}

const cells: readonly FaultCell[] = JSON.parse(cellsText);
sh(subject.prepare ?? "true");
for (const cell of cells) {
  const run: CellRun = { cell, result: await runCell(cell) };
  process.stdout.write(`${JSON.stringify(run)}\n`);
}
sh(subject.finish ?? "true");
rmSync(folder, { recursive: true });
process.exit(0);
