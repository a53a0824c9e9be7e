import { spawn } from "node:child_process";
import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { ProcessError } from "@kpng/process/process-error.ts";
import { runWithMain } from "@kpng/process/run-tasks.ts";
import type { Task } from "@kpng/process/task.ts";
import { serveTask } from "@kpng/watcher/stream/serve/serve.ts";
import { Command } from "commander";
import type { Options } from "./context.ts";
import { routesOptions, type SinkCommand } from "./sinks.ts";

/**
 * Lets `command` take any `to-NAME` that it does not know: the program `kpng-NAME` on the PATH is called with all further
 * arguments.
 */
export function addExternalBackends(
  command: Command,
  run: (name: string, args: readonly string[], options: Options) => Promise<void>,
): void {
  const any = new Command("*").argument("[arguments...]").allowUnknownOption().helpOption(false);
  any.action((words: readonly string[], _options: Options, self: Command) => {
    const [word = "", ...args] = words;
    if (!/^to-[a-z0-9-]+$/.test(word))
      throw new ProcessError("BAD_OPTION", `"${word}" is no backend: they are called to-NAME`);
    return run(word.slice("to-".length), args, self.optsWithGlobals());
  });
  command.addCommand(any, { hidden: true });
}

/**
 * Runs `kpng-NAME` with `--api` and further arguments until it ends; the stop is passed on to it.
 *
 * Errors: BAD_OPTION if there is no such program; BACKEND_FAILED if it ends with a failure.
 */
export function externalBackend(name: string, args: readonly string[]): Task {
  const program = findProgram(`kpng-${name}`);
  return { name: `backend/${name}`, run: (signal) => runProgram(program, args, signal) };
}

/** A backend program with a watcher in this process, on a unix socket that only this user can reach. */
export function toExternal(name: string, args: readonly string[]): SinkCommand {
  return {
    name: `to-${name}`,
    description: `run kpng-${name}`,
    examples: "",
    options: [],
    make: (_options, store, context) => {
      const folder = mkdtempSync(join(tmpdir(), "kpng-"));
      const address = `unix://${join(folder, "api.sock")}`;
      const backend = externalBackend(name, ["--api", address, ...args]);
      const serve = (onListening: () => void): Task =>
        serveTask({ ...routesOptions([], store, context), listen: [address], log: context.log, onListening });
      const run = async (signal: AbortSignal): Promise<void> => {
        const open = Promise.withResolvers<void>();
        const main: Task = { name: backend.name, run: (stop) => open.promise.then(() => backend.run(stop)) };
        try {
          await runWithMain(main, [serve(open.resolve)], signal);
        } finally {
          rmSync(folder, { recursive: true, force: true });
        }
      };
      return { name: backend.name, run };
    },
  };
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
