import { type Family, families } from "@kpng/model/address.ts";
import { type OptionSpec, oneOf } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { Task } from "@kpng/process/task.ts";
import type { BackendCommand, BackendContext } from "../backend/backend-command.ts";
import { backendTask } from "../backend/backend-task.ts";
import { conntrackOptions } from "../conntrack/conntrack-settings.ts";
import { readStateFolder, stateOptions } from "../disk/view-keeper.ts";
import { RecentAddresses } from "../node-addresses/local-addresses.ts";
import { SyncRequests } from "../sync/sync-loop.ts";
import { Sysctls } from "../sysctl/sysctls.ts";
import { type ParsedOptions, textOption } from "../types/parsed-options.ts";
import type { SyncUpdate } from "../types/sync-update.ts";
import { optionPrefix, paceOptions, planOptions, readProxySettings } from "./proxy-settings.ts";
import type { Destination, ProxyRun, ProxySpec, ServiceProxy } from "./proxy-spec.ts";
import { proxyTask } from "./proxy-task.ts";
import type { RuleChange, RuleDifference } from "./rule-set.ts";
import { RuleSets } from "./rule-sets.ts";

/**
 * Returns the command of a service proxy, e.g. `kpng-iptables`, from its description. The command installs and repairs
 * rules for the view of the node; options make it print (`--dry-run`), compare (`--diff`) or remove (`--cleanup`) them
 * instead. This folder holds everything that service proxies share; a backend only describes its rules.
 */
export function proxyBackend<Change extends RuleChange>(spec: ProxySpec<Change>): BackendCommand {
  const { name, aliases, description, examples, proxyMode, healthPort } = spec;
  return {
    name,
    aliases,
    description,
    examples,
    proxyMode,
    healthPort: (options) => (selectedRuns(spec, options).length === 0 ? healthPort : undefined),
    options: proxyOptions(spec),
    exitStatusIsResult: (options) => options.diff === true,
    makeTask: (options, context) => makeTask(spec, options, context),
  };
}

const diffOption: OptionSpec = {
  flags: "--diff",
  env: false,
  description:
    "print the differences between the installed rules and the desired rules, change nothing, and exit with 0 (no difference), 1 (differences) or 2 (failure)",
};

const outputOption: OptionSpec = {
  flags: "-o, --output <format>",
  description: "with --diff: table or json",
  default: "table",
  parse: oneOf(["table", "json"]),
};

function proxyOptions<Change extends RuleChange>(spec: ProxySpec<Change>): readonly OptionSpec[] {
  const { proxyMode, canDiff = true, alternatives = [] } = spec;
  const nodePorts = spec.defaultNodePortAddresses === undefined ? "all" : "primary; 0.0.0.0/0,::/0: all";
  const describe = ({ description }: OptionSpec) => description.replace("default: all", `default: ${nodePorts}`);
  return [
    ...planOptions.map((option) => ({ ...option, description: describe(option) })),
    ...spec.options,
    ...paceOptions(proxyMode),
    {
      flags: "--proc-sys <folder>",
      isExpert: true,
      description: "writable folder of sysctls, e.g. the host's /proc/sys mounted into a container",
      default: "/proc/sys",
    },
    { flags: "--dry-run", description: "print the transactions that would be committed, and change nothing" },
    ...(canDiff ? [diffOption, outputOption] : []),
    ...alternatives.flatMap(({ options }) => options),
    { flags: "--cleanup", description: "remove everything that this backend ever installed, and exit", env: false },
    ...conntrackOptions,
    ...stateOptions,
  ];
}

/** Returns the names of the options that select a run other than serving. */
function selectedRuns<Change extends RuleChange>({ alternatives = [] }: ProxySpec<Change>, options: ParsedOptions) {
  return ["dryRun", "diff", "cleanup", ...alternatives.map(({ optionKey }) => optionKey)].filter(
    (name) => options[name] === true,
  );
}

function makeTask<Change extends RuleChange>(
  spec: ProxySpec<Change>,
  options: ParsedOptions,
  context: BackendContext,
): Task {
  const { name, proxyMode, defaultNodePortAddresses, alternatives = [] } = spec;
  const proxy: ServiceProxy<Change> = spec.makeProxy(options, context.serviceProxyName);
  if (proxy.carriesTraffic === true) context.proxyHealth?.requireFirstSync();
  const standard = defaultNodePortAddresses === undefined ? [] : [defaultNodePortAddresses];
  const withDefault = { ...options, nodeportAddresses: options.nodeportAddresses ?? standard };
  const settings = readProxySettings(withDefault, proxy.wantsLoopbackNodePorts);
  if (selectedRuns(spec, options).length > 1) {
    const flags = ["--dry-run", "--cleanup", "--diff", ...alternatives.map((one) => one.options[0].flags)];
    throw new ProcessError("BAD_OPTION", `${flags.join(", ")}: only one of these can be given`);
  }
  const { log, metrics } = context;
  const addresses = new RecentAddresses();
  const runTo = (destination: Destination): ProxyRun<Change> => {
    const host = {
      destination,
      settings,
      sysctls: new Sysctls(textOption(options, "procSys")),
      requests: new SyncRequests(),
      log,
      metrics,
      localAddresses: addresses.read,
      forgetAddresses: addresses.forget,
    };
    return { name, proxy, host, context, options };
  };
  if (options.cleanup === true) {
    return { name: `backend/${name}/cleanup`, run: () => proxy.cleanUp(runTo({ kind: "kernel" }).host) };
  }
  if (options.diff === true) {
    const proxyRun = runTo({ kind: "nowhere" });
    return { name: `backend/${name}/diff`, run: (signal) => runDiff(proxyRun, signal) };
  }
  const alternative = alternatives.find((one) => options[one.optionKey] === true);
  if (alternative !== undefined) return alternative.makeTask(options, settings, context);
  const isDry = options.dryRun === true;
  const period = (key: string, standardMs: number): number => Number(options[key] ?? standardMs);
  const print = (text: string): void => void process.stdout.write(text);
  return proxyTask(runTo(isDry ? { kind: "print", print } : { kind: "kernel" }), {
    checkMs: isDry ? 0 : period(`${optionPrefix(proxyMode)}SyncPeriod`, 30_000),
    minIntervalMs: period(`${optionPrefix(proxyMode)}MinSyncPeriod`, 100),
    stateFolder: isDry ? undefined : readStateFolder(name, options, log),
  });
}

type FamilyDifference = RuleDifference & { readonly family: Family };

/**
 * Serves `--diff`: compares the installed rules once with the rules that the view requires, prints the differences, and
 * sets the exit status to 0 (no difference) or 1. `host.destination` is "nowhere".
 *
 * It rejects with the error from `openRuleSets`, with NO_VIEW if no watcher answers in time, or with the error from
 * reading the rules.
 */
async function runDiff<Change extends RuleChange>(
  { name, proxy, host, context, options }: ProxyRun<Change>,
  signal: AbortSignal,
): Promise<void> {
  const differences: FamilyDifference[] = [];
  const { ruleSets } = await proxy.openRuleSets(host);
  const rules = new RuleSets({
    ...host,
    ruleSets,
    onOutcome: ({ family, result }) => {
      if (result.kind !== "done") return;
      for (const difference of result.change.differences()) differences.push({ family, ...difference });
    },
  });
  let outcome: { readonly cause?: unknown } | undefined;
  const onChanges = async ({ view }: SyncUpdate): Promise<void> => {
    // A failure is also a result, and the comparison is not repeated after it.
    outcome = (await rules.sync(view, "all", { committing: () => undefined })).failure ?? {};
  };
  await backendTask({ ...context, isOnce: true, isDryRun: true, name: `${name}-diff`, onChanges }).run(signal);
  await rules.close();
  if (outcome === undefined) return;
  if ("cause" in outcome) throw outcome.cause;
  // The families may finish in any order.
  differences.sort((a, b) => families.indexOf(a.family) - families.indexOf(b.family));
  process.stdout.write(options.output === "json" ? formatJson(differences) : formatTable(differences));
  process.exitCode = differences.length === 0 ? 0 : 1;
}

/** "+" marks rules that a sync would write, "-" rules that it would remove. */
function formatTable(differences: readonly FamilyDifference[]): string {
  if (differences.length === 0) return "no difference\n";
  const blocks = differences.flatMap(({ family, summary, missing, unwanted }) => [
    `${family} ${summary}`,
    ...unwanted.map((rule) => `- ${rule}`),
    ...missing.map((rule) => `+ ${rule}`),
  ]);
  return `${blocks.join("\n")}\n`;
}

function formatJson(all: readonly FamilyDifference[]): string {
  const differences = all.map(({ family, fields, missing, unwanted }) => ({ family, ...fields, missing, unwanted }));
  return `${JSON.stringify({ differences }, undefined, 2)}\n`;
}
