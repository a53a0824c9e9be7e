import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import type { AnswerPage } from "@kpng/process/health/status-server.ts";
import { addOptions, logLevelOption, statusServerOptions } from "@kpng/process/options.ts";
import { reportsByExitStatus } from "@kpng/process/run/run-process.ts";
import type { Task } from "@kpng/process/task.ts";
import type { KubeConnection } from "@kpng/source/kube/connection.ts";
import type { Store } from "@kpng/watcher/store/store.ts";
import { Command } from "commander";
import type { CommandContext, Options } from "../context/command-context.ts";

/** A command that runs until it is stopped, with the options of the status server and of the log. */
type RunCommand = Omit<BackendCommand, "makeTask">;

/**
 * A command that uses the cluster state: `kpng SOURCE … to-NAME`. The sinks are `to-api`, `to-file`, `to-local`, and
 * one for each backend; `makeSource` runs them.
 */
export interface SinkCommand extends RunCommand {
  make(options: Options, store: Store, context: SinkContext): Task;
}

export interface SinkContext extends CommandContext {
  /** Connects to the API server; undefined if the source has no options for that. */
  readonly connect?: (() => Promise<KubeConnection>) | undefined;
  /** Sets the pages of the port for health and metrics, which has effect only if such a port is served. */
  readonly addPages?: ((pages: AnswerPage) => void) | undefined;
}

/** Names a backend and its aliases as sinks: `json` becomes `to-json`. */
export function toName<T extends RunCommand>(backend: T): T {
  return { ...backend, name: `to-${backend.name}`, aliases: backend.aliases?.map((alias) => `to-${alias}`) };
}

/** Makes the commander command. `path` are the words before its name: `kpng file`. `run` gets the parsed options. */
export function makeRunCommand(
  { name, aliases = [], description, options, examples, exitStatusIsResult }: RunCommand,
  path: string,
  run: (options: Options) => Promise<void>,
): Command {
  const command = addOptions(new Command(name), [...options, ...statusServerOptions, logLevelOption])
    .aliases([...aliases])
    .description(description)
    .addHelpText("after", examples.replaceAll("COMMAND", `${path} ${name}`))
    .action((_options: Options, self: Command) => run(self.optsWithGlobals()));
  return exitStatusIsResult === undefined ? command : reportsByExitStatus(command, exitStatusIsResult);
}
