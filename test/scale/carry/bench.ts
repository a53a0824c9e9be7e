import { readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { usageOf } from "../proc.ts";
import { type Carrier, maxConnections, startEndpoint, startHaproxy, startKpng } from "./carriers.ts";
import { download, keepOpen, shortConnections, upload } from "./load.ts";
import { profileOf } from "./profile.ts";

// The benchmark of kpng-userspace: against Debian's HAProxy with one thread and a direct connection, in the same run,
// over loopback. The figures are per second of the proxy's own CPU time, because the client and the endpoint share the
// cores with it. Needs the package haproxy. Up to
// 10 000 connections are kept open at the same time, fewer if the limit of open files does not allow them.

const rounds = 1;
// HAProxy keeps some of its connections for itself, and would let the last ones wait.
const kept = Math.min(10_000, maxConnections() - 500);
const print = (text: string): void => void process.stdout.write(`${text}\n`);

interface Figures {
  readonly connections: number;
  readonly download: number;
  readonly upload: number;
}

/** Runs a load, and returns its amount per second of the proxy's CPU time, or of real time for a direct connection. */
async function rate(carrier: Carrier, load: () => Promise<number>): Promise<number> {
  const cpuMs = (): number => (carrier.pid === undefined ? performance.now() : usageOf(carrier.pid).cpuMs);
  const before = cpuMs();
  const amount = await load();
  return amount / ((cpuMs() - before) / 1_000);
}

async function measure(carrier: Carrier): Promise<Figures> {
  const { port } = carrier;
  await shortConnections(port, 1_000);
  return {
    connections: await rate(carrier, () => shortConnections(port, 3_000)),
    download: await rate(carrier, () => download(port, 128)),
    upload: await rate(carrier, () => upload(port, 128)),
  };
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
const best = new Map<string, Figures>();
try {
  for (let round = 0; round < rounds; round++) {
    for (const carrier of carriers) {
      const figures = await measure(carrier);
      const known = best.get(carrier.name) ?? figures;
      best.set(carrier.name, {
        connections: Math.max(known.connections, figures.connections),
        download: Math.max(known.download, figures.download),
        upload: Math.max(known.upload, figures.upload),
      });
    }
  }
  print("| Proxy | Short connections per CPU-s | Download per CPU-s | Upload per CPU-s | Open connections |");
  print("|---|---|---|---|---|");
  for (const carrier of carriers) {
    const { connections, download: down, upload: up } = best.get(carrier.name) ?? (await measure(carrier));
    const mega = (bytes: number): string => `${Math.round(bytes / 1e6)} MB`;
    const unit = carrier.pid === undefined ? " (per second)" : "";
    const row = [carrier.name + unit, Math.round(connections), mega(down), mega(up), await measureOpen(carrier)];
    print(`| ${row.join(" | ")} |`);
  }
  const loads = {
    "short connections": (port: number) => shortConnections(port, 3_000),
    download: (port: number) => download(port, 256),
    upload: (port: number) => upload(port, 256),
  };
  for (const [name, load] of Object.entries(loads)) {
    print(`\nOwn time of functions, ${name}: ${(await profileOf(endpoint.port, load)).join(", ")}`);
  }
} finally {
  await Promise.all(carriers.map(({ stop }) => stop()));
}
