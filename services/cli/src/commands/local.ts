import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { connectionOptions, followOptions } from "@kpng/backend-kit/backend/backend-options.ts";
import { prepareBackend } from "@kpng/backend-kit/backend/run-backend.ts";
import { clientOptions } from "@kpng/process/credential-files.ts";
import { addOptions, logLevelOption, statusServerOptions } from "@kpng/process/options.ts";
import { answersByExitCode } from "@kpng/process/run/run-process.ts";
import { runWithMain } from "@kpng/process/task.ts";
import { Command } from "commander";
import { type Options, readApiClient, withContext } from "../context/command-context.ts";

/**
 * `kpng local to-NAME`: runs a backend for one node, with a remote watcher. The watcher holds the state of the cluster;
 * the backend puts the part for its node into effect.
 */
export function makeLocal(backends: readonly BackendCommand[], signal: AbortSignal): Command {
  const local = addOptions(new Command("local"), [
    ...connectionOptions,
    ...clientOptions("the connection to the watcher"),
  ]).addHelpText(
    "after",
    `
Examples:
  kpng local --api watcher.kube-system:12090 to-json --node-name n1
  kpng local --api unix:///run/kpng.sock to-callout --callout ./rules.sh
`,
  );
  for (const backend of backends) {
    const command = addOptions(new Command(`to-${backend.name}`).aliases(aliasesOf(backend)), [
      ...backend.options,
      ...followOptions,
      ...statusServerOptions,
      logLevelOption,
    ]);
    command
      .description(backend.description)
      .addHelpText("after", backend.examples.replaceAll("COMMAND", `kpng local to-${backend.name}`))
      .action((_options: Options, self: Command) => runLocalBackend(backend, self.optsWithGlobals(), signal));
    if (backend.isQuestion !== undefined) answersByExitCode(command, backend.isQuestion);
    local.addCommand(command);
  }
  return local;
}

/** Returns KPNG's names of the command `to-NAME`. */
function aliasesOf({ aliases = [] }: BackendCommand): string[] {
  return aliases.map((alias) => `to-${alias}`);
}

/** Runs a backend with the parsed values of its own options and of the common ones. */
async function runLocalBackend(backend: BackendCommand, options: Options, signal: AbortSignal): Promise<void> {
  const client = readApiClient(options);
  await withContext(options, `kpng-${backend.name}`, async (context) => {
    const { main, beside } = prepareBackend(backend, options, { ...context, ...client });
    await runWithMain(main, beside, signal);
  });
}
