import { spawnSync } from "node:child_process";
import { usageOf } from "../proc.ts";
import { type Carrier, maxConnections, startEndpoint, startHaproxy, startKpng } from "./carriers.ts";
import { download, keepOpen, shortConnections, upload } from "./load.ts";

// The benchmark of kpng-userspace against Debian's HAProxy with one thread, in the same run, over loopback. Each figure is
// per second of the proxy's own CPU time, because the client and the endpoint share the cores with it. Needs the package
// haproxy. Up to 10 000 connections are kept open at the same time, fewer if the limit of open files does not allow them.

// HAProxy keeps some of its connections for itself, and would let the last ones wait.
const kept = Math.min(10_000, maxConnections() - 500);
const print = (text: string): void => void process.stdout.write(`${text}\n`);

/** Runs a load, and returns its amount per second of the proxy's CPU time. */
async function rate({ pid }: Carrier, load: () => Promise<number>): Promise<number> {
  const before = usageOf(pid).cpuMs;
  const amount = await load();
  return amount / ((usageOf(pid).cpuMs - before) / 1_000);
}

async function measure(carrier: Carrier): Promise<readonly string[]> {
  const { port } = carrier;
  await shortConnections(port, 1_000);
  return [
    (await rate(carrier, () => shortConnections(port, 3_000))).toFixed(0),
    `${((await rate(carrier, () => download(port, 128))) / 1e6).toFixed(0)} MB`,
    `${((await rate(carrier, () => upload(port, 128))) / 1e6).toFixed(0)} MB`,
    await measureOpen(carrier),
  ];
}

/** Memory of a proxy for each pair of connections. */
async function measureOpen({ pid, port }: Carrier): Promise<string> {
  const before = usageOf(pid).rssBytes;
  const close = await keepOpen(port, kept);
  const after = usageOf(pid).rssBytes;
  close();
  return `${((after - before) / kept / 1_024).toFixed(1)} KiB for each of ${kept} pairs`;
}

if (spawnSync("haproxy", ["-v"]).error !== undefined) {
  process.stderr.write("the benchmark needs HAProxy: apt-get install haproxy\n");
  process.exit(2);
}
const endpoint = await startEndpoint();
const carriers = [await startHaproxy(endpoint.port), await startKpng(endpoint.port)];
try {
  print("| Proxy | Short connections per CPU-s | Download per CPU-s | Upload per CPU-s | Open connections |");
  print("|---|---|---|---|---|");
  for (const carrier of carriers) print(`| ${[carrier.name, ...(await measure(carrier))].join(" | ")} |`);
} finally {
  await Promise.all([endpoint, ...carriers].map(({ stop }) => stop()));
}
