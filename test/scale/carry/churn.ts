import { readdirSync } from "node:fs";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { usageOf } from "../proc.ts";
import { type Carrier, startEndpoint, startKpng } from "./carriers.ts";
import { download, shortConnections, upload } from "./load.ts";

// Churn through kpng-userspace: short connections, resets in the middle of transfers, and large transfers in both
// directions, while its endpoints change. Prints memory and descriptors twenty times. `churn.ts SECONDS`; default 300.
// The exit status is 1 unless memory is flat from the second to the last quarter, and all descriptors of connections
// are closed within 30 s after the end.

const seconds = Number(process.argv[2] ?? 300);
const deadlineMs = performance.now() + seconds * 1_000;
const sampleMs = (seconds * 1_000) / 20;
/** Growth that is still flat, in MiB. V8's heap breathes; in the first minutes of a busy machine, 37 were seen. */
const maxGrowth = seconds < 120 ? 64 : 32;
const print = (text: string): void => void process.stdout.write(`${text}\n`);
const filesOf = (pid: number): number => readdirSync(`/proc/${pid}/fd`).length;

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

/** Prints a row for each sample, and returns the memory in MiB of each. */
async function report(pid: number): Promise<readonly number[]> {
  const samples: number[] = [];
  print("| Second | RSS in MiB | Descriptors | CPU in s |\n|---|---|---|---|");
  while (performance.now() < deadlineMs) {
    await sleep(sampleMs);
    const { rssBytes, cpuMs } = usageOf(pid);
    const second = Math.round(seconds - (deadlineMs - performance.now()) / 1_000);
    samples.push(rssBytes / 1_048_576);
    print(`| ${second} | ${(rssBytes / 1_048_576).toFixed(0)} | ${filesOf(pid)} | ${(cpuMs / 1_000).toFixed(1)} |`);
  }
  return samples;
}

/** Returns the mean of the samples of one quarter, 0 to 3. */
function meanOf(samples: readonly number[], quarter: number): number {
  const part = samples.slice((samples.length * quarter) / 4, (samples.length * (quarter + 1)) / 4);
  return part.reduce((sum, one) => sum + one, 0) / part.length;
}

const endpoint = await startEndpoint();
const kpng = await startKpng(endpoint.port);
try {
  const pid = kpng.pid ?? 0;
  const idleFiles = filesOf(pid);
  const transfers = async (): Promise<void> => {
    while (performance.now() < deadlineMs) {
      await download(kpng.port, 16, 2);
      await upload(kpng.port, 16, 2);
    }
  };
  const updates = setInterval(() => kpng.update?.(), 500);
  const connections = shortConnections(kpng.port, deadlineMs - performance.now(), 16);
  const [samples, count] = await Promise.all([report(pid), connections, resetConnections(kpng), transfers()]);
  clearInterval(updates);
  const [early, late] = [meanOf(samples, 1), meanOf(samples, 3)];
  const endMs = performance.now() + 30_000;
  // One for the file that the watcher may be reading.
  while (filesOf(pid) > idleFiles + 1 && performance.now() < endMs) await sleep(100);
  const left = filesOf(pid);
  print(`\n${count} short connections; mean RSS ${early.toFixed(0)} and later ${late.toFixed(0)} MiB;`);
  print(`${idleFiles} descriptors before, ${left} after`);
  if (late > early + maxGrowth || left > idleFiles + 1 || count === 0) process.exitCode = 1;
} finally {
  await Promise.all([kpng.stop(), endpoint.stop()]);
}
