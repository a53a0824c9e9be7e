import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { connectionOptions, followOptions } from "@kpng/backend-kit/backend/backend-options.ts";
import { serveBackend } from "@kpng/backend-kit/backend/run-backend.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import { clientOptions } from "@kpng/process/credential-files.ts";
import { addOptions, logLevelOption, statusServerOptions } from "@kpng/process/options.ts";
import { reportsByExitStatus } from "@kpng/process/run/run-process.ts";
import { Command } from "commander";

/**
 * `kpng local to-NAME`: runs a backend for one node, with a remote watcher. The watcher holds the cluster state; the
 * backend puts the part for its node into effect.
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
    const aliases = (backend.aliases ?? []).map((alias) => `to-${alias}`);
    const command = addOptions(new Command(`to-${backend.name}`).aliases(aliases), [
      ...backend.options,
      ...followOptions,
      ...statusServerOptions,
      logLevelOption,
    ]);
    command
      .description(backend.description)
      .addHelpText("after", backend.examples.replaceAll("COMMAND", `kpng local to-${backend.name}`))
      .action((_options: ParsedOptions, self: Command) => serveBackend(backend, self.optsWithGlobals(), signal));
    if (backend.exitStatusIsResult !== undefined) reportsByExitStatus(command, backend.exitStatusIsResult);
    local.addCommand(command);
  }
  return local;
}
