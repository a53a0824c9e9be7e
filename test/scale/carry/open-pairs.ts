import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { runInGuest, whyNoGuest } from "../../guest/guest.ts";
import { usageOf } from "../proc.ts";
import { maxConnections, startEndpoint, startKpng } from "./carriers.ts";

// Memory of open connections in a fresh kpng-userspace: `open-pairs.ts [--guest] [PAIRS]`, default 10 000. With
// `--guest`, all of it runs in a guest, whose kernel has no other sockets and allows as many files as root asks for.
// Clients in several processes open them, each from an address of its own. Raises the limit of open files, as root;
// otherwise there are fewer pairs if it does not allow them. The exit status is 1 if a pair takes more than 32 KiB of
// RSS, or if descriptors are left.

const maxPairKiB = 32;
const sources = ["127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.14"];
const holder = new URL("hold-connections.ts", import.meta.url).pathname;
const print = (text: string): void => void process.stdout.write(`${text}\n`);

/** Memory of the kernel for all sockets of this machine, in KiB. Source: slabinfo(5), /proc/net/sockstat. */
function kernelMemory(): { readonly objects: number | undefined; readonly buffers: number } {
  const pages = Number(/^TCP:.* mem (\d+)/m.exec(readFileSync("/proc/net/sockstat", "utf8"))?.[1] ?? 0);
  let objects: number | undefined;
  try {
    const lines = readFileSync("/proc/slabinfo", "utf8").matchAll(
      /^(?:TCP|sock_inode_cache|filp|eventpoll_epi) +(\d+) +\d+ +(\d+)/gm,
    );
    objects = [...lines].reduce((sum, [, count, bytes]) => sum + (Number(count) * Number(bytes)) / 1_024, 0);
  } catch {
    // For root alone.
  }
  return { objects, buffers: pages * 4 };
}

/** Opens connections in a process of its own, and resolves when all of them have had an answer. */
async function hold(port: number, count: number, source: string): Promise<ChildProcess> {
  const child = spawn(process.execPath, [holder, String(port), String(count), source], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const [line] = await once(child.stdout, "data");
  if (String(line) !== "open\n") throw new Error(`not opened: ${String(line)}`);
  return child;
}

const { values, positionals } = parseArgs({
  options: { guest: { type: "boolean", default: false } },
  allowPositionals: true,
});
if (values.guest) {
  const missing = whyNoGuest();
  if (missing !== undefined) {
    print(`cannot run: ${missing}`);
    process.exit(1);
  }
  const folder = await mkdtemp(join(tmpdir(), "kpng-guest-"));
  const command = [process.execPath, "test/scale/carry/open-pairs.ts", ...positionals];
  const end = await runInGuest({ folder, command, memoryMiB: 3_072, timeoutMs: 600_000 });
  await rm(folder, { recursive: true, force: true });
  print(end.kind === "not-booted" ? `cannot run: ${end.reason}` : end.output);
  process.exit(end.kind === "exited" ? end.exitCode : 1);
}
spawnSync("prlimit", ["--pid", String(process.pid), "--nofile=65536:65536"]);
const wanted = Number(positionals[0] ?? 10_000);
const pairs = Math.min(wanted, maxConnections());
const endpoint = await startEndpoint();
const kpng = await startKpng(endpoint.port);
try {
  const pid = kpng.pid ?? 0;
  const files = (): number => readdirSync(`/proc/${pid}/fd`).length;
  const [idleFiles, idle, kernelBefore] = [files(), usageOf(pid).rssBytes, kernelMemory()];
  const share = Math.ceil(pairs / sources.length);
  const holders = await Promise.all(sources.map((source) => hold(kpng.port, share, source)));
  const [open, rss, kernel] = [files() - idleFiles, usageOf(pid).rssBytes, kernelMemory()];
  const count = share * sources.length;
  const perPair = (rss - idle) / 1_024 / count;
  const objects =
    kernel.objects === undefined || kernelBefore.objects === undefined
      ? "unknown without root"
      : `${((kernel.objects - kernelBefore.objects) / count).toFixed(1)} KiB`;
  const buffers = `${((kernel.buffers - kernelBefore.buffers) / count).toFixed(1)} KiB`;
  for (const { stdin } of holders) stdin?.end();
  const endMs = performance.now() + 30_000;
  while (files() > idleFiles + 1 && performance.now() < endMs) await sleep(100);
  const left = files();
  const mib = (bytes: number): string => `${(bytes / 1_048_576).toFixed(0)} MiB`;
  print("| Open pairs | Descriptors for them | RSS before | RSS | RSS per pair | Kernel objects per pair | Buffers |");
  print("|--:|--:|--:|--:|--:|--:|--:|");
  print(
    `| ${[count, open, mib(idle), mib(rss), `${perPair.toFixed(1)} KiB`, objects, buffers].join(" | ")} |\n\n` +
      `Kernel memory is that of all four sockets of a pair: two of the proxy, the client's and the endpoint's.\n` +
      `${idleFiles} descriptors before, ${left} after`,
  );
  if (pairs < wanted) print(`The limit of open files allows ${pairs} of ${wanted} pairs.`);
  if (perPair > maxPairKiB || open < 2 * count || left > idleFiles + 1) process.exitCode = 1;
} finally {
  await Promise.all([kpng.stop(), endpoint.stop()]);
}
