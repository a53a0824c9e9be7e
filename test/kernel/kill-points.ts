import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { Dice } from "../peer/kube-proxy/generate-pods.ts";
import { programFile } from "../process/program-file.ts";
import { childrenOf } from "../scale/proc.ts";
import { manyServices } from "./laboratory/many-services.ts";

/** Longest time from a start to the rules of its state, in milliseconds; an emulated machine needs more. */
const patienceMs = Number(process.env.KPNG_PATIENCE_MS ?? 30_000);

/** KPNG_KILL_SEED repeats a failed run. */
export const killSeed = Number(process.env.KPNG_KILL_SEED ?? Math.floor(Math.random() * 2 ** 31));

/** Returns the number of kills: KPNG_KILL_POINTS=100 sets another one. */
export function killPoints(usual: number): number {
  return Number(process.env.KPNG_KILL_POINTS ?? usual);
}

/** Progress of the change at the time of a kill: not started, partly done, or done. */
type Met = "before" | "between" | "after";

/** A backend that is killed, and how its rules are read. */
export interface Victim {
  /** Words that select the backend, and let it sync without a pause. */
  readonly sink: readonly string[];
  /** Prepares each new namespace. */
  readonly prepare?: ((laboratory: Laboratory, name: string) => Promise<unknown>) | undefined;
  /** Returns the rules of a namespace, comparable between namespaces. */
  readonly rulesOf: (laboratory: Laboratory, name: string) => Promise<readonly string[]>;
}

/** How often and with how many Services a backend is killed. */
export interface KillOptions {
  readonly points: number;
  readonly seed: number;
  readonly serviceCount: number;
  /** Number of states that changes choose from, at least 2. Each costs an undisturbed run. */
  readonly stateCount: number;
}

/**
 * Kills a backend at random moments of starts and changes, starts it again, and compares its rules with those of an
 * undisturbed run. Returns a line that says what the kills met. Errors: other rules, with the seed and the difference.
 */
export async function killRepeatedly(
  { sink, prepare, rulesOf }: Victim,
  { points, seed, serviceCount, stateCount }: KillOptions,
): Promise<string> {
  const dice = new Dice(seed);
  const states = Array.from({ length: stateCount }, () => manyServices(serviceCount, dice));
  const laboratory = await Laboratory.open();
  await using _ = { [Symbol.asyncDispose]: () => laboratory.close() };
  await laboratory.add("node");
  await prepare?.(laboratory, "node");
  const file = join(laboratory.folder, "state.json");
  /** Rules of each state after an undisturbed run on a node without rules. */
  const expected: (readonly string[])[] = [];
  let startMs = 0;
  for (const [at, state] of states.entries()) {
    const path = join(laboratory.folder, `state-${at}.json`);
    await writeFile(path, state);
    await laboratory.add(`undisturbed-${at}`);
    await prepare?.(laboratory, `undisturbed-${at}`);
    const startedAt = performance.now();
    await laboratory.run(`undisturbed-${at}`, command(path, "--once"));
    startMs = performance.now() - startedAt;
    expected.push(await rulesOf(laboratory, `undisturbed-${at}`));
  }

  function command(path: string, ...more: readonly string[]): readonly string[] {
    const options = ["--node-name", "n1", "--cluster-cidr", "10.1.0.0/16", "--state-dir", "none"];
    return [process.execPath, programFile("cli"), "file", "-i", path, "to-local", ...sink, ...options, ...more];
  }

  /** Replaces the file atomically, like editors and ConfigMaps. */
  async function put(at: number): Promise<void> {
    await writeFile(`${file}.new`, states[at] ?? "");
    await rename(`${file}.new`, file);
  }

  let said = "";
  function start(): ChildProcess {
    const child = laboratory.start("node", command(file));
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
      if (performance.now() - startedAt > patienceMs) {
        const [is, should] = [new Set(await rulesOf(laboratory, "node")), new Set(expected[at])];
        const wrong = [...is].filter((line) => !should.has(line)).map((line) => `too much: ${line}`);
        const missing = [...should].filter((line) => !is.has(line)).map((line) => `missing: ${line}`);
        throw new Error([`seed ${seed}, ${what}`, ...[...wrong, ...missing].slice(0, 40), said].join("\n"));
      }
      // Each check runs two processes on the cores that the program needs for its start.
      await sleep(50);
    }
    return performance.now() - startedAt;
  }

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
  return `seed ${seed}: ${points} kills, rules then ${JSON.stringify(met)}, while ${JSON.stringify(interrupted)}`;
}

/** Waits for the process of the program itself, a child of the commands that enter its namespace. */
async function programOf(child: ChildProcess): Promise<number> {
  if (!existsSync(`/proc/self/task/${process.pid}/children`)) {
    throw new Error("the kernel does not list the children of a process: it needs CONFIG_PROC_CHILDREN");
  }
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
    if (childrenOf(program).some((tool) => /save|restore|nft|^(ipvsadm|ipset|ip)$/.test(nameOf(tool)))) return;
    await sleep(1);
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
