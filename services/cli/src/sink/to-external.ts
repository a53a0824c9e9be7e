import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runWithMain } from "@kpng/process/run/run-tasks.ts";
import type { Task } from "@kpng/process/task.ts";
import { serveTask } from "@kpng/watcher/stream/serve/serve.ts";
import { externalBackend } from "./external-program.ts";
import { routesOptions } from "./routes-options.ts";
import type { SinkCommand } from "./sink-command.ts";

/**
 * Runs the program kpng-NAME as backend. It connects to this process, on a unix socket that only this user can reach.
 * This is the sink `kpng SOURCE to-local to-NAME` for backends that are not built into `kpng`. `makeSource` calls it.
 * Separate from `toLocal`, which runs a built-in backend in this process.
 */
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
