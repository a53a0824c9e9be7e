import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { connectionOptions, followOptions } from "@kpng/backend-kit/backend/backend-options.ts";
import { serveBackend } from "@kpng/backend-kit/backend/run-backend.ts";
import { clientOptions } from "@kpng/process/credential-files.ts";
import { addOptions } from "@kpng/process/options.ts";
import { Command } from "commander";
import { makeRunCommand, toName } from "../sink/sink-command.ts";

/** `kpng local to-NAME`: runs a backend for one node, with a remote watcher. */
export function makeLocal(signal: AbortSignal, backends: readonly BackendCommand[]): Command {
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
    const command = { ...toName(backend), options: [...backend.options, ...followOptions] };
    local.addCommand(makeRunCommand(command, "kpng local", (options) => serveBackend(backend, options, signal)));
  }
  return local;
}
