import { type ChildProcess, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { childrenOf } from "@kpng/laboratory/node-process.ts";
import { until } from "../cluster/until.ts";
import { Dice } from "../peer/kube-proxy/generate-pods.ts";
import { programFile } from "../process/program-file.ts";
import { manyServices } from "./laboratory/many-services.ts";

/** Longest time from a start to the rules of its state, in milliseconds; an emulated machine needs more. */
const patienceMs = Number(process.env.KPNG_PATIENCE_MS ?? 30_000);

/** KPNG_KILL_SEED repeats a failed run. */
export const killSeed = Number(process.env.KPNG_KILL_SEED ?? Math.floor(Math.random() * 2 ** 31));

/** Returns the number of kills: KPNG_KILL_POINTS=100 sets another one. */
export function killPoints(usual: number): number {
  return Number(process.env.KPNG_KILL_POINTS ?? usual);
}

/** How often and with how many Services a backend is killed. */
export interface KillOptions {
  readonly points: number;
  readonly serviceCount: number;
  /** Prepares the network namespace of the node. */
  readonly prepare?: ((laboratory: Laboratory, name: string) => Promise<unknown>) | undefined;
}

/**
 * Kills a backend at random moments of starts and changes, and lets it sync once more: then `--diff` finds nothing that
 * is missing, wrong or left over. `sink` has the words that select the backend and let it sync without a pause. Returns a
 * line that says what the kills met. Errors: a difference, with the seed.
 */
export async function killRepeatedly(
  sink: readonly string[],
  { points, serviceCount, prepare }: KillOptions,
): Promise<string> {
  const dice = new Dice(killSeed);
  await using laboratory = await Laboratory.open();
  await laboratory.add("node");
  await prepare?.(laboratory, "node");
  const file = join(laboratory.folder, "state.json");
  const command = (...more: readonly string[]): readonly string[] => {
    const options = ["--node-name", "n1", "--cluster-cidr", "10.1.0.0/16", "--state-dir", "none"];
    return [process.execPath, programFile("cli"), "file", "-i", file, "to-local", ...sink, ...options, ...more];
  };

  /** Replaces the file by a random state, atomically, as editors and ConfigMaps do. */
  async function putState(): Promise<void> {
    await writeFile(`${file}.new`, manyServices(serviceCount, dice));
    await rename(`${file}.new`, file);
  }

  /** Returns what `--diff` prints; "" if it finds no difference. */
  async function difference(): Promise<string> {
    const { exitCode, stdout, stderr } = await laboratory.tryRun("node", command("--diff"));
    if (exitCode > 1) throw new Error(`seed ${killSeed}: --diff ended with ${exitCode}: ${stderr}`);
    return exitCode === 0 ? "" : stdout;
  }

  await putState();
  const startedAt = performance.now();
  await laboratory.run("node", command("--once"));
  const startMs = performance.now() - startedAt;
  const interrupted: Record<string, number> = {};
  let unfinished = 0;
  for (let point = 0; point < points; point++) {
    const isFromStart = dice.chance(40);
    const isWithTools = dice.chance(50);
    const isAtTool = dice.chance(75);
    const delayMs = dice.number(0, Math.round(isAtTool ? startMs / 6 : startMs));
    if (isFromStart) await putState();
    const victim = new Victim(laboratory.start("node", command("--log-level", "debug")));
    if (!isFromStart) {
      await until(
        "the first sync",
        () => victim.said.includes("sync complete"),
        patienceMs,
        () => victim.said,
      );
      await putState();
    }
    if (isAtTool) await victim.untilFirstTool(startMs * 2);
    await sleep(delayMs);
    const names = await victim.kill(isWithTools);
    for (const name of names.length === 0 ? ["no tool"] : names) interrupted[name] = (interrupted[name] ?? 0) + 1;
    if ((await difference()) !== "") unfinished++;
    await laboratory.run("node", command("--once"));
    const left = await difference();
    if (left === "") continue;
    const how = `${isFromStart ? "start" : "change"}, ${delayMs} ms${isAtTool ? " after its first tool" : ""}`;
    throw new Error(
      `seed ${killSeed}, point ${point} (${how}, while ${names.join(" and ") || "no tool"} ran)\n${left}`,
    );
  }
  return `seed ${killSeed}: ${unfinished} of ${points} kills came before the end, while ${JSON.stringify(interrupted)}`;
}

/** A running backend. */
class Victim {
  readonly #child: ChildProcess;
  /** Its output. */
  said = "";

  constructor(child: ChildProcess) {
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on("data", (data) => (this.said = (this.said + String(data)).slice(-20_000)));
    }
  }

  /** Waits until it runs a tool, because it starts or syncs; at most `limitMs`. */
  async untilFirstTool(limitMs: number): Promise<void> {
    const program = await this.#program();
    const deadlineMs = performance.now() + limitMs;
    while (performance.now() < deadlineMs) {
      if (childrenOf(program).some((tool) => /save|restore|nft|^(ipvsadm|ipset|ip)$/.test(nameOf(tool)))) return;
      await sleep(1);
    }
  }

  /** Kills it, with or without the tools that it is running; returns the names of the tools. */
  async kill(isWithTools: boolean): Promise<readonly string[]> {
    const program = await this.#program();
    const tools = childrenOf(program);
    const names = tools.map(nameOf).filter((name) => name !== "");
    const closed = once(this.#child, "close");
    // A tool may have ended by now.
    spawnSync("kill", ["-KILL", program, ...(isWithTools ? tools : [])].map(String), { stdio: "ignore" });
    await closed;
    return names;
  }

  /** Waits for the process of the program itself, a child of the commands that enter its namespace. */
  async #program(): Promise<number> {
    if (!existsSync(`/proc/self/task/${process.pid}/children`)) {
      throw new Error("the kernel does not list the children of a process: it needs CONFIG_PROC_CHILDREN");
    }
    for (;;) {
      const [program] = childrenOf(this.#child.pid ?? 0);
      if (program !== undefined && nameOf(program).startsWith("node")) return program;
      if (this.#child.exitCode !== null) throw new Error(`it has exited with ${this.#child.exitCode}: ${this.said}`);
      await sleep(1);
    }
  }
}

function nameOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0")[0]?.split("/").at(-1) ?? "";
  } catch {
    return "ended";
  }
}
