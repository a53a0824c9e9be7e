import { readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { usageOf } from "../proc.ts";
import { type Carrier, maxConnections, startEndpoint, startHaproxy, startKpng } from "./carriers.ts";
import { download, keepOpen, shortConnections, upload } from "./load.ts";

// The benchmark of kpng-userspace against Debian's HAProxy with one thread and a direct connection, in the same run,
// over loopback. Each figure is per second of the proxy's own CPU time, because the client and the endpoint share the
// cores with it, and in parentheses per second of elapsed time. Needs the package haproxy. Up to 10 000 connections are
// kept open at the same time, fewer if the limit of open files does not allow them.

// HAProxy keeps some of its connections for itself, and would let the last ones wait.
const kept = Math.min(10_000, maxConnections() - 500);
const print = (text: string): void => void process.stdout.write(`${text}\n`);

/** Amount of a load per second of the proxy's CPU time, and of elapsed time. */
interface Rate {
  readonly perCpuSecond: number;
  readonly perSecond: number;
}

/** Runs a load, and returns its rates; a direct connection has only that of elapsed time. */
async function rate({ pid }: Carrier, load: () => Promise<number>): Promise<Rate> {
  const cpuMs = (): number => (pid === undefined ? 0 : usageOf(pid).cpuMs);
  const [startMs, before] = [performance.now(), cpuMs()];
  const amount = await load();
  const perSecond = amount / ((performance.now() - startMs) / 1_000);
  return { perSecond, perCpuSecond: amount / ((cpuMs() - before) / 1_000) };
}

/** *Shape:* `1278 MB (699 MB per s)`; only the second for a direct connection. */
function cell({ pid }: Carrier, { perCpuSecond, perSecond }: Rate, unit: number, name: string): string {
  const show = (amount: number): string => `${Math.round(amount / unit)}${name}`;
  const elapsed = `(${show(perSecond)} per s)`;
  return pid === undefined ? elapsed : `${show(perCpuSecond)} ${elapsed}`;
}

async function measure(carrier: Carrier): Promise<readonly string[]> {
  const { port } = carrier;
  await shortConnections(port, 1_000);
  return [
    cell(carrier, await rate(carrier, () => shortConnections(port, 3_000)), 1, ""),
    cell(carrier, await rate(carrier, () => download(port, 128)), 1e6, " MB"),
    cell(carrier, await rate(carrier, () => upload(port, 128)), 1e6, " MB"),
    await measureOpen(carrier),
  ];
}

/** Memory of a proxy for each pair of connections, in bytes, and its descriptors with all open. */
async function measureOpen(carrier: Carrier): Promise<string> {
  if (carrier.pid === undefined) return "";
  const before = usageOf(carrier.pid).rssBytes;
  const close = await keepOpen(carrier.port, kept);
  const after = usageOf(carrier.pid).rssBytes;
  const files = readdirSync(`/proc/${carrier.pid}/fd`).length;
  close();
  await sleep(2_000);
  const left = readdirSync(`/proc/${carrier.pid}/fd`).length;
  const perPair = (after - before) / kept / 1_024;
  return `${perPair.toFixed(1)} KiB for each of ${kept} pairs (${files} descriptors, ${left} after closing)`;
}

const endpoint = await startEndpoint();
const carriers = [endpoint, await startHaproxy(endpoint.port), await startKpng(endpoint.port)];
try {
  print("| Proxy | Short connections per CPU-s | Download per CPU-s | Upload per CPU-s | Open connections |");
  print("|---|---|---|---|---|");
  for (const carrier of carriers) print(`| ${[carrier.name, ...(await measure(carrier))].join(" | ")} |`);
} finally {
  await Promise.all(carriers.map(({ stop }) => stop()));
}
