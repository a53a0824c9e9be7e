import { availableParallelism } from "node:os";
import type { BackendCommand, BackendContext } from "@kpng/backend-kit/backend/backend-command.ts";
import { conntrackOptions, wantedSettings } from "@kpng/backend-kit/conntrack/conntrack-settings.ts";
import { readStateOptions, stateOptions } from "@kpng/backend-kit/disk/state-folder.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { Task } from "@kpng/process/task.ts";
import { shadowTask } from "@kpng/shadow/shadow-task.ts";
import { iptablesOptions } from "./backend-options.ts";
import { cleanUp } from "./cleanup-task.ts";
import { diffTask } from "./diff-task.ts";
import { readSettings } from "./read-settings.ts";
import { rulesTask } from "./rules-task.ts";

/** Makes this node's iptables rules serve the Services of its view, as kube-proxy's iptables mode does. */
export const iptablesBackend: BackendCommand = {
  name: "iptables",
  description: "serve Services with iptables rules on this node, as kube-proxy does, beside kube-proxy or in its place",
  options: [...iptablesOptions, ...conntrackOptions, ...stateOptions],
  proxyMode: "iptables",
  canDiff: true,
  isQuestion: ({ diff, shadow, once }) => diff === true || (shadow === true && once === true),
  keepsState: (options) => !isLooking(options),
  examples: `
Examples:
  # as kube-proxy would be started
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16

  # what would be done to this node's rules, without doing it
  COMMAND --node-name n1 --once --dry-run

  # whether somebody else has changed the rules: exit code 0 for no, 1 for yes, 2 if it could not be found out
  COMMAND --node-name n1 --diff

  # where kube-proxy, which serves this node, would treat packets otherwise; nothing is changed
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16 --shadow

  # remove every rule that was ever made
  COMMAND --cleanup

Rules stay when the program ends: traffic goes on, and the next start changes only what differs.
`,
  makeTask,
};

function makeTask(options: ParsedOptions, context: BackendContext): Task {
  const settings = readSettings(options, context.serviceProxyName);
  const kinds = ["dryRun", "cleanup", "shadow", "diff"].filter((name) => options[name] === true);
  if (kinds.length > 1) {
    throw new ProcessError("BAD_OPTION", "--dry-run, --cleanup, --shadow and --diff do not go together");
  }
  const limits = {
    lockSeconds: Math.ceil(Number(options.iptablesLockTimeout ?? 5_000) / 1_000),
    timeoutMs: Number(options.iptablesTimeout ?? 300_000),
  };
  const print = options.dryRun === true ? (text: string) => void process.stdout.write(text) : undefined;
  if (options.cleanup === true) {
    const { log } = context;
    return {
      name: "backend/iptables/cleanup",
      run: () => cleanUp({ prefix: settings.names.prefix, ...limits, log, print }),
    };
  }
  const variant =
    options.iptablesVariant === "nft" || options.iptablesVariant === "legacy" ? options.iptablesVariant : "auto";
  const looking = {
    settings,
    context,
    variant,
    timeoutMs: limits.timeoutMs,
    format: options.output === "json" || options.output === "yaml" ? options.output : "table",
    print: (text: string) => void process.stdout.write(text),
    onVerdict: (isSame: boolean) => {
      process.exitCode = isSame ? 0 : 1;
    },
  } as const;
  if (options.diff === true) return diffTask(looking);
  if (options.shadow === true) {
    const [intervalMs, settleMs] = [Number(options.shadowInterval ?? 10_000), Number(options.shadowSettle ?? 5_000)];
    return shadowTask({ name: "iptables", ...looking, intervalMs, settleMs });
  }
  return rulesTask({
    settings,
    context,
    ...limits,
    variant,
    driftMs: print !== undefined ? 0 : Number(options.driftInterval ?? options.iptablesSyncPeriod ?? 30_000),
    minIntervalMs: Number(options.iptablesMinSyncPeriod ?? 100),
    print,
    // A process that does more than this backend has not read the options.
    state: isLooking(options) ? undefined : (context.state ?? readStateOptions("iptables", options, context.log)),
    // The table of flows is the node's: the instance that serves most Services sees to it.
    conntrack: context.serviceProxyName === "" ? wantedSettings(options, availableParallelism()) : [],
  });
}

/** True if nothing on the node may be changed by a run that serves no Services. */
function isLooking(options: ParsedOptions): boolean {
  return [options.dryRun, options.cleanup, options.shadow, options.diff].includes(true);
}
