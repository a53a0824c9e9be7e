import { Command } from "commander";
import { builtInBackends } from "./commands/backends.ts";
import { makeCertificates } from "./commands/certificates.ts";
import { makeCompletion } from "./commands/completion.ts";
import { makeDashboard } from "./commands/dashboard.ts";
import { makeDemo } from "./commands/demo.ts";
import { makeDiff } from "./commands/diff.ts";
import { makeInspect } from "./commands/inspect.ts";
import { makeLocal } from "./commands/local.ts";
import { makeSource } from "./commands/source.ts";
import { makeVersion, versionText } from "./commands/version.ts";
import { apiCommand } from "./source/api.ts";
import { fileCommand } from "./source/file.ts";
import { kubeCommand } from "./source/kube.ts";
import { replayCommand } from "./source/replay.ts";

/** In the order of the help. */
const sources = [kubeCommand, fileCommand, apiCommand, replayCommand];

/**
 * Makes the whole command tree of `kpng`. A running command stops when `signal` aborts. `startKpng` calls it, unless
 * the command is a query; tests inspect the tree without a process. Separate from `start.ts`, because it loads all
 * code.
 */
export function makeKpng(signal: AbortSignal): Command {
  const kpng = new Command("kpng")
    .description("A Kubernetes service proxy: one watcher for the cluster, a small backend on every node")
    .version(versionText, "-V, --version", "print the version")
    .addHelpText(
      "after",
      `
Every option can also be set by an environment variable. Data goes to standard output, logs go to standard error.

Examples:
  kpng kube to-api
  kpng file -i manifests/ to-api
  kpng local to-json --node-name n1
  kpng file -i manifests/ to-local to-callout --callout ./rules.sh
  kpng status
  kpng get nodes --state behind,failing
  kpng explain --node n1 default/web
`,
    );
  for (const source of sources) kpng.addCommand(makeSource(source, builtInBackends, signal));
  kpng.addCommand(makeLocal(builtInBackends, signal));
  for (const command of makeInspect(signal)) kpng.addCommand(command);
  kpng.addCommand(makeDashboard(signal));
  kpng.addCommand(makeDiff(builtInBackends, signal));
  kpng.addCommand(makeCertificates(signal));
  kpng.addCommand(makeDemo(signal));
  kpng.addCommand(makeVersion(signal));
  const { completion, answer } = makeCompletion(kpng);
  kpng.addCommand(completion).addCommand(answer, { hidden: true });
  return kpng;
}
