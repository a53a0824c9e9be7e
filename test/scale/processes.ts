import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { Caller, type Handlers } from "./calls.ts";

/** Which half of the machine a process gets, so that server and load do not take turns on one core. */
export type Place = "server" | "load";

/**
 * Starts a TypeScript file of this folder that answers calls, on its half of the cores.
 *
 * Its garbage collection can be forced, and what it prints goes to standard error.
 */
export function startCalled<H extends Handlers>(file: string, place: Place): Caller<H> {
  const { KPNG_BENCH_PROFILE: folder } = process.env;
  const flags = folder === undefined ? [] : ["--cpu-prof", "--cpu-prof-dir", folder];
  const program = [process.execPath, "--expose-gc", ...flags, join(import.meta.dirname, file)];
  const [command, ...args] = [...pinTo(place), ...program];
  const child = spawn(command ?? "", args, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  return new Caller<H>(child, file);
}

/** Starts any program on its half of the cores. */
export function startProgram(program: string, programArgs: readonly string[], place: Place): ChildProcess {
  const [command, ...args] = [...pinTo(place), program, ...programArgs];
  return spawn(command ?? "", args, { stdio: ["ignore", "ignore", "pipe"] });
}

/** Returns what a command begins with to run on its half of the cores: nothing with one core, or without taskset. */
function pinTo(place: Place): readonly string[] {
  const cores = availableParallelism();
  if (cores < 2 || process.env.KPNG_BENCH_NO_PIN !== undefined || !hasTaskset()) return [];
  const half = Math.ceil(cores / 2);
  return ["taskset", "-c", place === "server" ? `0-${half - 1}` : `${half}-${cores - 1}`];
}

function hasTaskset(): boolean {
  try {
    execFileSync("taskset", ["-c", "0", "true"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}
