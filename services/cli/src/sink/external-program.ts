import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { Task } from "@kpng/process/task.ts";

/**
 * A task that runs a backend which is not built into `kpng`: the program `kpng-NAME`. The task ends when the program
 * exits, and sends it SIGTERM when its signal aborts.
 *
 * `makeLocal` calls it directly, `makeSource` through `toExternal`, which also serves the state to the program.
 * Separate from both, because they run the program alike.
 *
 * Errors: BAD_OPTION if no such program is on the PATH; of the task: BACKEND_FAILED if the program fails.
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
    child.once("exit", (code, signalName) => resolve(code === 0 ? "" : (signalName ?? `exit status ${code}`)));
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
      // The next folder may have it.
    }
  }
  throw new ProcessError(
    "BAD_OPTION",
    `backend to-${name.slice("kpng-".length)} not found: it is not built in, and no program ${name} is on the PATH`,
  );
}
