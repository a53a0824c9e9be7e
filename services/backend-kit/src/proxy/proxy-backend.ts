import type { OptionSpec } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { Task } from "@kpng/process/task.ts";
import type { BackendCommand, BackendContext } from "../backend/backend-command.ts";
import { conntrackOptions } from "../conntrack/conntrack-settings.ts";
import { readStateOptions, stateOptions } from "../disk/view-keeper.ts";
import { nodePortAddressesOption, RecentAddresses } from "../node-addresses/local-addresses.ts";
import { SyncRequests } from "../sync/sync-requests.ts";
import { Sysctls } from "../sysctl/sysctls.ts";
import { type ParsedOptions, textOption } from "../types/parsed-options.ts";
import { diffTask } from "./diff-task.ts";
import type { Destination, ProxyHost } from "./proxy-host.ts";
import { oneOf, paceOptions, planOptions, readProxySettings } from "./proxy-settings.ts";
import type { ProxyAlternative, ProxySpec, ServiceProxy } from "./proxy-spec.ts";
import type { RuleChange } from "./rule-set.ts";
import { serveTask } from "./serve-task.ts";

/**
 * Returns the command of a service proxy, e.g. `kpng-iptables`, from its description. The `backend.ts` of each service
 * proxy (iptables, nft, ipvs, userspace, ebpf) calls it. The command installs and repairs rules for the view of the
 * node; with options it prints (`--dry-run`), compares (`--diff`) or removes (`--cleanup`) them. Everything that
 * service proxies share is in this folder; a backend only describes its rules.
 */
export function proxyBackend<Change extends RuleChange>(spec: ProxySpec<Change>): BackendCommand {
  const { name, aliases, description, examples, proxyMode, canDiff = true } = spec;
  return {
    name,
    aliases,
    description,
    examples,
    proxyMode,
    options: proxyOptions(spec),
    canDiff,
    isQuestion: (options) => options.diff === true,
    keepsState: (options) => selectedRuns(spec, options).length === 0,
    makeTask: (options, context) => makeTask(spec, options, context),
  };
}

const diffOption: OptionSpec = {
  flags: "--diff",
  description:
    "print the differences between the installed rules and the desired rules, change nothing, and exit with 0 (no difference), 1 (differences) or 2 (failure)",
};

const outputOption: OptionSpec = {
  flags: "-o, --output <format>",
  description: "with --diff: table, json or yaml",
  default: "table",
  parse: oneOf("--output", ["table", "json", "yaml"]),
};

function proxyOptions<Change extends RuleChange>(spec: ProxySpec<Change>): readonly OptionSpec[] {
  const { proxyMode, canDiff = true, alternatives = [] } = spec;
  return [
    ...planOptions.map((option) =>
      option === nodePortAddressesOption && spec.defaultNodePortAddresses !== undefined
        ? {
            ...option,
            description: option.description.replace("default: all", "default: primary; 0.0.0.0/0,::/0: all"),
          }
        : option,
    ),
    ...spec.options,
    ...paceOptions(proxyMode),
    {
      flags: "--proc-sys <folder>",
      description: "writable folder of sysctls, e.g. the host's /proc/sys mounted into a container",
      default: "/proc/sys",
    },
    { flags: "--dry-run", description: "print the transactions that would be committed, and change nothing" },
    ...(canDiff ? [diffOption, outputOption] : []),
    ...alternatives.flatMap(({ options }) => options),
    { flags: "--cleanup", description: "remove everything that this backend ever installed, and exit" },
    ...conntrackOptions,
    ...stateOptions,
  ];
}

/** Returns the option that selects an alternative. *Shape:* `--cleanup-kube-proxy`. */
function flagOf({ options: [{ flags }] }: ProxyAlternative): string {
  return flags;
}

/** Returns the names of the given options that select another run than serving. */
function selectedRuns<Change extends RuleChange>({ alternatives = [] }: ProxySpec<Change>, options: ParsedOptions) {
  return ["dryRun", "diff", "cleanup", ...alternatives.map(({ name }) => name)].filter(
    (name) => options[name] === true,
  );
}

/** Returns the task that the options select: serve, print, compare, clean up, or an alternative. */
function makeTask<Change extends RuleChange>(
  spec: ProxySpec<Change>,
  options: ParsedOptions,
  context: BackendContext,
): Task {
  const { name, proxyMode, alternatives = [] } = spec;
  const proxy: ServiceProxy<Change> = spec.makeProxy(options, context.serviceProxyName);
  if (proxy.carriesTraffic === true) context.proxyHealth?.requireFirstSync();
  const { defaultNodePortAddresses } = spec;
  const standard = defaultNodePortAddresses === undefined ? [] : [defaultNodePortAddresses];
  const withDefault = { ...options, nodeportAddresses: options.nodeportAddresses ?? standard };
  const settings = readProxySettings(withDefault, proxy.wantsLoopbackNodePorts);
  const selected = selectedRuns(spec, options);
  if (selected.length > 1) {
    const flags = ["--dry-run", "--cleanup", "--diff", ...alternatives.map(flagOf)];
    throw new ProcessError("BAD_OPTION", `${flags.join(", ")}: only one of these can be given`);
  }
  const print = (text: string) => void process.stdout.write(text);
  const { log, metrics } = context;
  const sysctls = new Sysctls(textOption(options, "procSys"));
  const requests = new SyncRequests();
  const addresses = new RecentAddresses();
  const host = (destination: Destination): ProxyHost => ({
    ...{ destination, settings, sysctls, requests, log, metrics },
    ...{ localAddresses: addresses.read, forgetAddresses: addresses.forget },
  });
  if (options.cleanup === true) {
    return { name: `backend/${name}/cleanup`, run: () => proxy.cleanUp(host({ kind: "kernel" })) };
  }
  if (options.diff === true) {
    const format = options.output === "json" || options.output === "yaml" ? options.output : "table";
    return diffTask({ name, proxy, host: host({ kind: "nowhere" }), context, format, print });
  }
  const alternative = alternatives.find((one) => options[one.name] === true);
  if (alternative !== undefined) return alternative.makeTask(options, settings, context);
  const isDry = options.dryRun === true;
  const period = (key: string, standardMs: number): number => Number(options[key] ?? standardMs);
  return serveTask({
    name,
    proxy,
    host: host(isDry ? { kind: "print", print } : { kind: "kernel" }),
    context,
    options,
    checkMs: isDry ? 0 : period("driftInterval", period(`${proxyMode}SyncPeriod`, 30_000)),
    minIntervalMs: period(`${proxyMode}MinSyncPeriod`, 100),
    // A process with several backends does not parse the state options of each.
    state: isDry ? undefined : (context.state ?? readStateOptions(name, options, log)),
  });
}
