import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { Task } from "@kpng/process/task.ts";

/**
 * Runs `kpng-NAME` with `--api` and further arguments until it ends; the stop is passed on to it.
 *
 * Errors: BAD_OPTION if there is no such program; BACKEND_FAILED if it ends with a failure.
 */
export function externalBackend(name: string, args: readonly string[]): Task {
  const program = findProgram(`kpng-${name}`);
  return { name: `backend/${name}`, run: (signal) => runProgram(program, args, signal) };
}

async function runProgram(program: string, args: readonly string[], signal: AbortSignal): Promise<void> {
  const child = spawn(program, args, { stdio: "inherit" });
  const stop = (): void => void child.kill("SIGTERM");
  signal.addEventListener("abort", stop, { once: true });
  const outcome = await new Promise<string>((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("exit", (code, signalName) => resolve(code === 0 ? "" : (signalName ?? `exit code ${code}`)));
  });
  signal.removeEventListener("abort", stop);
  if (outcome !== "" && !signal.aborted) throw new ProcessError("BACKEND_FAILED", `${program}: ${outcome}`);
}

function findProgram(name: string): string {
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // Not here: the next folder may have it.
    }
  }
  throw new ProcessError(
    "BAD_OPTION",
    `there is no backend to-${name.slice("kpng-".length)}: kpng has none of that name, and no program ${name} is on the PATH`,
  );
}
