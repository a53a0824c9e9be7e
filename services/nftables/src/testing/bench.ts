import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import type { ServiceKey } from "@kpng/model/service.ts";
import { growOldGenerationByHalf, keepYoungGenerationSmall } from "@kpng/process/run/v8-heap.ts";
import { NftTable } from "../commit/nft-table.ts";
import { NftablesConnection } from "../netlink/nftables-connection.ts";
import { ChangingPlan } from "./plans.ts";

// Measures full sync, one change and restart with 2 ports and 10 endpoints a Service, alone and beside a table of
// 5 000 chains of another program: `npm run bench -- nft-alone [SERVICES…]`. With `--beside NAME` only once, beside
// what the network namespace contains, under that name. CPU time contains that of the program nft.

const { values, positionals } = parseArgs({ options: { beside: { type: "string" } }, allowPositionals: true });
const sizes = positionals.length > 0 ? positionals.map(Number) : [1_000, 5_000];
const changes = 200;
// As a backend does.
keepYoungGenerationSmall();
growOldGenerationByHalf();
const nothing = (): void => undefined;
const connection = new NftablesConnection();
const make = () => new NftTable({ family: "v4", table: "kpng", masqueradeBit: 14, connection, maxClients: 1_000_000 });

interface Cost {
  readonly ms: number;
  readonly cpuMs: number;
  /** Longest time without a turn of the event loop, in milliseconds. */
  readonly blockedMs: number;
}

async function measure(work: () => Promise<unknown>): Promise<Cost> {
  const [start, cpu, toolsMs] = [performance.now(), process.cpuUsage(), childrenCpuMs()];
  let [turnAt, blockedMs] = [start, 0];
  const noteTurn = (): void => {
    const now = performance.now();
    blockedMs = Math.max(blockedMs, now - turnAt);
    turnAt = now;
  };
  const turns = setInterval(noteTurn, 1);
  await work();
  noteTurn();
  clearInterval(turns);
  const { user, system } = process.cpuUsage(cpu);
  const cpuMs = (user + system) / 1_000 + childrenCpuMs() - toolsMs;
  return { ms: performance.now() - start, cpuMs, blockedMs };
}

/** CPU time of programs that have ended, in steps of 10 ms. Source: proc(5), cutime and cstime. */
function childrenCpuMs(): number {
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ").at(-1)?.split(" ") ?? [];
  return (Number(fields[13]) + Number(fields[14])) * 10;
}

function nft(commands: string): void {
  const { status, stderr } = spawnSync("nft", ["-f", "-"], { input: commands, encoding: "utf8" });
  if (status !== 0) throw new Error(stderr);
}

function addForeignChains(): void {
  const chains = Array.from({ length: 5_000 }, (_, at) => `add chain ip foreign c${at}\n`);
  nft(`add table ip foreign\n${chains.join("")}`);
}

async function run(services: number, note: string): Promise<void> {
  const plan = new ChangingPlan("v4");
  for (let at = 0; at < services; at++) plan.set(`ns/web-${at}`, 10);
  let table = make();
  const full = await measure(() => table.syncAll(plan, nothing));
  const each: Cost[] = [];
  for (let at = 0; at < changes; at++) {
    const key: ServiceKey = `ns/web-${(at * 37) % services}`;
    plan.set(key, at % 2 === 0 ? 9 : 10);
    // The chains for 9 and 10 endpoints exist after two changes.
    const cost = await measure(() => table.sync(plan, new Set([key]), nothing));
    if (at >= 2) each.push(cost);
  }
  table = make();
  const restart = await measure(() => table.syncAll(plan, nothing));
  const check = await measure(() => table.repair(plan));
  const sorted = each.map(({ ms }) => ms).toSorted((a, b) => a - b);
  const [median = 0, p99 = 0] = [sorted[sorted.length >> 1], sorted[Math.floor(sorted.length * 0.99)]];
  const changeCpu = each.reduce((sum, { cpuMs }) => sum + cpuMs, 0) / each.length;
  const rss = Math.round(process.resourceUsage().maxRSS / 1024);
  const text = ({ ms, cpuMs, blockedMs }: Cost): string =>
    `${ms.toFixed(0)} ms (CPU ${cpuMs.toFixed(0)} ms, longest turn ${blockedMs.toFixed(0)} ms)`;
  process.stdout.write(
    `${services} Services, ${note}: full ${text(full)}, change median ${median.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms ` +
      `(CPU ${changeCpu.toFixed(2)} ms), restart ${text(restart)}, check ${text(check)}, peak RSS ${rss} MB\n`,
  );
  nft("delete table ip kpng\n");
}

for (const services of sizes) await run(services, values.beside ?? "alone");
if (values.beside === undefined) {
  addForeignChains();
  for (const services of sizes) await run(services, "beside 5 000 foreign chains");
}
connection.close();
