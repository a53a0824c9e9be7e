import type { BackendCommand } from "@kpng/backend-kit/backend-command.ts";
import { connectionOptions, followOptions } from "@kpng/backend-kit/backend-options.ts";
import { addOptions, logLevelOption, statusServerOptions } from "@kpng/process/options.ts";
import { answersByExitCode } from "@kpng/process/run/exit-code.ts";
import { tlsOptions } from "@kpng/process/tls-files.ts";
import { Command } from "commander";
import type { Options } from "../context/command-context.ts";
import { runLocalBackend } from "./local.ts";

/** `kpng diff NAME`: whether what stands on this node is what its view wants, for the backends that can look. */
export function makeDiff(backends: readonly BackendCommand[], signal: AbortSignal): Command {
  const diff = new Command("diff")
    .description("whether the rules in this node's kernel are those that its view wants; nothing is changed")
    .addHelpText(
      "after",
      `
Examples:
  kpng diff iptables --node-name n1
  kpng diff iptables --api watcher.kube-system:12090 --node-name n1 -o yaml

The exit code is 0 if nothing differs, 1 if something does, and 2 if it could not be found out; standard error then says why.
`,
    );
  for (const backend of backends.filter(({ canDiff }) => canDiff === true)) {
    const command = addOptions(new Command(backend.name), [
      ...connectionOptions,
      ...tlsOptions("api-client-", "the connection to the watcher"),
      ...backend.options,
      ...followOptions,
      ...statusServerOptions,
      logLevelOption,
    ])
      .description(`compare the rules of kpng-${backend.name}, as kpng-${backend.name} --diff does`)
      .action((_options: Options, self: Command) =>
        runLocalBackend(backend, { ...self.optsWithGlobals(), diff: true }, signal),
      );
    diff.addCommand(answersByExitCode(command, () => true));
  }
  return diff;
}
