import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Dice } from "../peer/kube-proxy/dice.ts";
import { describePackets } from "./describe-packets.ts";
import { describeVariants } from "./describe-variants.ts";
import { useLegacyTools } from "./laboratory/legacy-tools.ts";
import { manyServices } from "./laboratory/many-services.ts";
import { comparableTable } from "./nft-table-text.ts";
import { comparableRules } from "./rules-text.ts";

const main = fileURLToPath(new URL("../../services/cli/src/main.ts", import.meta.url));
/** Number of kills. KPNG_KILL_POINTS=100 sets another number, KPNG_KILL_SEED repeats a failed run. */
const points = Number(process.env.KPNG_KILL_POINTS ?? 8);
const seed = Number(process.env.KPNG_KILL_SEED ?? Math.floor(Math.random() * 2 ** 31));
const serviceCount = 150;
const stateCount = 4;

/** Progress of the change at the time of a kill: not started, partly done, or done. */
type Met = "before" | "between" | "after";

/** A backend that is killed, and how its rules are read. */
interface Victim {
  /** Words that select the backend, and let it sync without a pause. */
  readonly sink: readonly string[];
  readonly prepare?: ((laboratory: Laboratory) => Promise<unknown>) | undefined;
  /** Returns the rules of a namespace, comparable between namespaces. */
  readonly rulesOf: (laboratory: Laboratory, name: string) => Promise<readonly string[]>;
}

describeVariants("kpng-iptables, killed at random moments", undefined, (variant) =>
  testKills({
    sink: ["to-iptables", "--iptables-min-sync-period", "0s"],
    prepare: (laboratory) => (variant === "legacy" ? useLegacyTools(laboratory, "node") : Promise.resolve()),
    rulesOf: async (laboratory, name) => {
      const tools = ["iptables-save", "ip6tables-save"];
      const [v4 = "", v6 = ""] = await Promise.all(tools.map((tool) => laboratory.run(name, [tool])));
      return comparableRules({ v4, v6 }, "KPNG-");
    },
  }),
);

describePackets("kpng-nft, killed at random moments", () =>
  testKills({
    sink: ["to-nft", "--nftables-min-sync-period", "0s"],
    rulesOf: async (laboratory, name) => {
      // A kill may come before the table is made.
      const list = (ip: string) => ["sh", "-c", `nft list table ${ip} kpng 2>/dev/null || true`];
      const listings = await Promise.all(["ip", "ip6"].map((ip) => laboratory.run(name, list(ip))));
      return listings.flatMap(comparableTable);
    },
  }),
);

function testKills({ sink, prepare, rulesOf }: Victim): void {
  let laboratory: Laboratory;
  let file: string;
  const dice = new Dice(seed);
  const states = Array.from({ length: stateCount }, () => manyServices(serviceCount, dice));
  /** Rules of each state after an undisturbed run on a node without rules. */
  const expected: (readonly string[])[] = [];
  let startMs = 0;

  beforeAll(async () => {
    laboratory = await Laboratory.open();
    await laboratory.add("node");
    await prepare?.(laboratory);
    file = join(laboratory.folder, "state.json");
    for (const [at, state] of states.entries()) {
      const path = join(laboratory.folder, `state-${at}.json`);
      await writeFile(path, state);
      await laboratory.add(`undisturbed-${at}`);
      const startedAt = performance.now();
      await laboratory.run(`undisturbed-${at}`, command(path, "--once"));
      startMs = performance.now() - startedAt;
      expected.push(await rulesOf(laboratory, `undisturbed-${at}`));
    }
  });
  afterAll(() => laboratory?.close());

  function command(path: string, ...more: readonly string[]): readonly string[] {
    const options = ["--node-name", "n1", "--cluster-cidr", "10.1.0.0/16", "--state-dir", "none"];
    return [process.execPath, main, "file", "-i", path, "to-local", ...sink, ...options, ...more];
  }

  /** Replaces the file atomically, like editors and ConfigMaps. */
  async function put(at: number): Promise<void> {
    await writeFile(`${file}.new`, states[at] ?? "");
    await rename(`${file}.new`, file);
  }

  let said = "";
  function start(): ChildProcess {
    const child = laboratory.start("node", command(file, "--drift-interval", "1s"));
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on("data", (data) => {
        said = (said + String(data)).slice(-20_000);
      });
    }
    return child;
  }

  /** Kills the program, with or without the tools that it is running; returns the names of the tools. */
  async function kill(child: ChildProcess, isWithTools: boolean): Promise<readonly string[]> {
    const program = await programOf(child);
    const tools = childrenOf(program);
    const names = tools.map(nameOf).filter((name) => name !== "");
    const closed = once(child, "close");
    for (const each of [program, ...(isWithTools ? tools : [])]) killOne(each);
    await closed;
    return names;
  }

  /** Waits until the rules are those of a state; returns the duration in milliseconds. */
  async function untilRight(at: number, what: string): Promise<number> {
    const startedAt = performance.now();
    const isRight = async () => JSON.stringify(await rulesOf(laboratory, "node")) === JSON.stringify(expected[at]);
    while (!(await isRight())) {
      if (performance.now() - startedAt > 30_000) {
        const [is, should] = [new Set(await rulesOf(laboratory, "node")), new Set(expected[at])];
        const wrong = [...is].filter((line) => !should.has(line)).map((line) => `too much: ${line}`);
        const missing = [...should].filter((line) => !is.has(line)).map((line) => `missing: ${line}`);
        expect.fail([`seed ${seed}, ${what}`, ...[...wrong, ...missing].slice(0, 40), said].join("\n"));
      }
      // Each check runs two processes on the cores that the program needs for its start.
      await sleep(50);
    }
    return performance.now() - startedAt;
  }

  test(
    `${points} times, seed ${seed}: once it runs again, the rules are those of an undisturbed run`,
    async () => {
      let at = 0;
      await put(at);
      let child = start();
      await untilRight(at, "at the start");
      const met: Record<Met, number> = { before: 0, between: 0, after: 0 };
      const interrupted: Record<string, number> = {};
      for (let point = 0; point < points; point++) {
        const next = (at + dice.number(1, stateCount - 1)) % stateCount;
        const isFromStart = dice.chance(40);
        const isWithTools = dice.chance(50);
        const isAtTool = dice.chance(75);
        const delayMs = dice.number(0, Math.round(isAtTool ? startMs / 6 : startMs));
        if (isFromStart) {
          await kill(child, false);
          await put(next);
          child = start();
        } else await put(next);
        if (isAtTool) await untilFirstTool(child, startMs * 2);
        await sleep(delayMs);
        const names = await kill(child, isWithTools);
        for (const name of names.length === 0 ? ["no tool"] : names) interrupted[name] = (interrupted[name] ?? 0) + 1;
        const left = JSON.stringify(await rulesOf(laboratory, "node"));
        const isOld = left === JSON.stringify(expected[at]);
        met[isOld ? "before" : left === JSON.stringify(expected[next]) ? "after" : "between"] += 1;
        child = start();
        const how = `${isFromStart ? "start" : "change"}, ${delayMs} ms${isAtTool ? " after its first tool" : ""}`;
        await untilRight(next, `point ${point} (${how}, while ${names.join(" and ") || "no tool"} ran)`);
        at = next;
      }
      await kill(child, true);
      process.stdout.write(
        `seed ${seed}: ${points} kills, rules then ${JSON.stringify(met)}, while ${JSON.stringify(interrupted)}\n`,
      );
    },
    points * 15_000,
  );
}

/** Waits for the process of the program itself, a child of the commands that enter its namespace. */
async function programOf(child: ChildProcess): Promise<number> {
  for (;;) {
    const [program] = childrenOf(child.pid ?? 0);
    if (program !== undefined && nameOf(program).startsWith("node")) return program;
    if (child.exitCode !== null) throw new Error(`the program has exited with status ${child.exitCode}`);
    await sleep(1);
  }
}

/** Waits until the program runs a tool, because it starts or syncs; at most `limitMs`. */
async function untilFirstTool(child: ChildProcess, limitMs: number): Promise<void> {
  const program = await programOf(child);
  const deadlineMs = performance.now() + limitMs;
  while (performance.now() < deadlineMs) {
    if (childrenOf(program).some((tool) => /save|restore|nft/.test(nameOf(tool)))) return;
    await sleep(1);
  }
}

function childrenOf(parent: number): readonly number[] {
  try {
    return readFileSync(`/proc/${parent}/task/${parent}/children`, "utf8").split(" ").filter(Boolean).map(Number);
  } catch {
    // It has exited in the meantime.
    return [];
  }
}

function nameOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0")[0]?.split("/").at(-1) ?? "";
  } catch {
    return "ended";
  }
}

function killOne(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has already exited.
  }
}
