import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { connectionOptions, followOptions } from "@kpng/backend-kit/backend/backend-options.ts";
import { addOptions, logLevelOption, statusServerOptions } from "@kpng/process/options.ts";
import { answersByExitCode } from "@kpng/process/run/exit-code.ts";
import { clientOptions } from "@kpng/process/token-file.ts";
import { Command } from "commander";
import type { Options } from "../context/command-context.ts";
import { runLocalBackend } from "./local.ts";
import { withPlainErrors } from "./plain-errors.ts";

/**
 * `kpng diff NAME`: compares the installed rules with the desired ones, for the backends that support it. `makeKpng`
 * adds it. It runs the backend as `kpng local` does, with options under which it compares once and exits. Separate from
 * `local.ts`, because only some backends can compare.
 */
export function makeDiff(backends: readonly BackendCommand[], signal: AbortSignal): Command {
  const diff = new Command("diff")
    .description("compare the rules in this node's kernel with those that its view requires; changes nothing")
    .addHelpText(
      "after",
      `
Examples:
  kpng diff iptables --node-name n1
  kpng diff iptables --api watcher.kube-system:12090 --node-name n1 -o yaml

The exit code is 0 if nothing differs, 1 if something differs, and 2 if the comparison failed: standard error has the reason.
`,
    );
  for (const backend of backends.filter(({ canDiff }) => canDiff === true)) {
    const command = addOptions(new Command(backend.name), [
      ...connectionOptions,
      ...clientOptions("the connection to the watcher"),
      ...backend.options,
      ...followOptions,
      ...statusServerOptions,
      logLevelOption,
    ])
      .description(`compare the rules of kpng-${backend.name}, like kpng-${backend.name} --diff`)
      .action((_options: Options, self: Command) => {
        // A person reads the answer: the error follows in plain text, so the log adds nothing.
        const isDefault = self.getOptionValueSource("logLevel") === "default";
        const options = { ...self.optsWithGlobals(), diff: true, ...(isDefault ? { logLevel: "off" } : {}) };
        return withPlainErrors(() => runLocalBackend(backend, options, signal));
      });
    diff.addCommand(answersByExitCode(command, () => true));
  }
  return diff;
}
