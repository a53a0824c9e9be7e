import { readdirSync } from "node:fs";
import { connect } from "node:net";
import { usageOf } from "../proc.ts";
import { type Carrier, startEndpoint, startKpng } from "./carriers.ts";
import { download, shortConnections } from "./load.ts";

// Churn through kpng-userspace: short connections, resets in the middle of transfers, and large transfers, while its
// endpoints change. Prints memory and descriptors every 15 seconds. `churn.ts SECONDS`; default 300.

const seconds = Number(process.argv[2] ?? 300);
const deadlineMs = performance.now() + seconds * 1_000;
const print = (text: string): void => void process.stdout.write(`${text}\n`);

/** Connections that the client resets while data is on the way. */
async function resetConnections(carrier: Carrier): Promise<void> {
  while (performance.now() < deadlineMs) {
    const socket = connect(carrier.port, "127.0.0.1");
    socket.on("error", () => undefined);
    socket.write("d16\n");
    await new Promise((resolve) => socket.once("data", resolve));
    socket.resetAndDestroy();
  }
}

async function report(carrier: Carrier): Promise<void> {
  const pid = carrier.pid ?? 0;
  print("| Second | RSS in MiB | Descriptors | CPU in s |\n|---|---|---|---|");
  while (performance.now() < deadlineMs) {
    await new Promise((resolve) => setTimeout(resolve, 15_000));
    const { rssBytes, cpuMs } = usageOf(pid);
    const second = Math.round(seconds - (deadlineMs - performance.now()) / 1_000);
    const files = readdirSync(`/proc/${pid}/fd`).length;
    print(`| ${second} | ${(rssBytes / 1_048_576).toFixed(0)} | ${files} | ${(cpuMs / 1_000).toFixed(1)} |`);
  }
}

const endpoint = await startEndpoint();
const kpng = await startKpng(endpoint.port);
try {
  const transfers = async (): Promise<void> => {
    while (performance.now() < deadlineMs) await download(kpng.port, 16, 2);
  };
  const left = (): number => deadlineMs - performance.now();
  const updates = setInterval(() => kpng.update?.(), 500);
  const load = [shortConnections(kpng.port, left(), 16), resetConnections(kpng), transfers(), report(kpng)];
  const [count] = await Promise.all(load);
  clearInterval(updates);
  print(`\n${count} short connections`);
} finally {
  await Promise.all([kpng.stop(), endpoint.stop()]);
}
