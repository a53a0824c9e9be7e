import type { OpenRuleSets, ProxyHost } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import { conntrackLiberal, GuardedSysctl, routeLocalnet, type Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { scanRules } from "../read/read-rules.ts";
import {
  BackendIptablesError,
  maxChainsOf,
  openTools,
  type RunTool,
  runTool,
  type Tools,
  type Variant,
} from "../read/tools.ts";
import { localnetMarker } from "../render/fixed-chains.ts";
import type { RuleSettings } from "../render/render-options.ts";
import { type IptablesChange, IptablesRuleSet, type Kernel } from "./iptables-rule-set.ts";
import { observeRules } from "./observe-rules.ts";

/** Options of `openRuleSets`, from the command line. */
export interface OpenOptions {
  readonly settings: RuleSettings;
  readonly variant: Variant | "auto";
}

/**
 * Opens the rule set of each family that the node has tools for.
 *
 * Errors: IPTABLES_MISSING, IPTABLES_TOO_OLD for IPv4.
 */
export async function openRuleSets(options: OpenOptions, host: ProxyHost): Promise<OpenRuleSets<IptablesChange>> {
  const { settings, variant } = options;
  const { destination, sysctls } = host;
  const isReadOnly = destination.kind !== "kernel";
  const ruleSets: IptablesRuleSet[] = [];
  for (const tools of await openTools(variant, runTool, host.log)) {
    const { family } = tools;
    const log = host.log.with({ family });
    const kernel = openKernel(tools, host);
    const { read } = kernel;
    const isWanted = host.settings.isLoopbackNodePorts;
    ruleSets.push(
      new IptablesRuleSet({
        family,
        settings,
        kernel,
        localnet:
          family === "v4" ? await openRouteLocalnet({ isWanted, read, isReadOnly, sysctls, log: host.log }) : undefined,
        isConntrackLiberal: async () => ((await sysctls.read(conntrackLiberal)) ?? 0) !== 0,
        log,
        isReadOnly,
      }),
    );
  }
  return { ruleSets, onOutcome: observeRules(host.metrics, ruleSets) };
}

/**
 * Returns the access of one rule set to the kernel. For `--dry-run` it prints transactions, for `--diff` it ignores
 * them.
 */
function openKernel(tools: Tools, { destination }: ProxyHost): Kernel {
  const restore = async (transaction: string): Promise<void> => {
    if (destination.kind === "print") destination.print(`# ${tools.restore} --noflush\n${transaction}`);
    if (destination.kind === "kernel") {
      await restoreRules(transaction, { tools, run: runTool });
    }
  };
  return {
    read: (take) => scanRules(tools, runTool, take),
    restore,
    maxChains: maxChainsOf(tools),
  };
}

interface RestoreOptions {
  readonly tools: Tools;
  readonly run: RunTool;
  /**
   * How long to wait for the xtables lock while another program holds it, in seconds. Default: 5, as kube-proxy.
   * iptables-nft has no lock.
   */
  readonly lockSeconds?: number | undefined;
}

/** Exit status of iptables-legacy if it did not get the lock. Source: iptables `xtables.h`, RESOURCE_PROBLEM. */
const lockExitCode = 4;

/**
 * Commits a transaction with `iptables-restore --noflush`.
 *
 * Errors: RESTORE_REFUSED with the rejected line; its table is unchanged, but tables before it are committed. LOCK_HELD
 * if another program kept the lock; nothing is changed. And those of `run`.
 */
export async function restoreRules(transaction: string, options: RestoreOptions): Promise<void> {
  const { tools, run, lockSeconds = 5 } = options;
  const command = [tools.restore, "--noflush", "-w", String(lockSeconds)];
  const { exitCode, stderr } = await run(command, { input: transaction });
  if (exitCode === 0) return;
  const output = stderr.trim();
  if (exitCode === lockExitCode && /xtables lock/.test(output)) {
    const text = `${tools.restore} did not get the xtables lock within ${lockSeconds} s: ${output}`;
    throw new BackendIptablesError("LOCK_HELD", text);
  }
  const lines = transaction.split("\n").length - 1;
  const rejected = describeLine(transaction, output);
  const text = `${tools.restore} rejected a transaction of ${lines} lines (exit status ${exitCode})${rejected}: ${output}`;
  throw new BackendIptablesError("RESTORE_REFUSED", text);
}

/**
 * Returns a description of the line that the tool reports; "" if it reports none.
 *
 * iptables-legacy sends a table to the kernel at COMMIT. If the kernel rejects the table, the tool reports that line.
 */
function describeLine(transaction: string, output: string): string {
  const number = Number(/(?:line:? )(\d+)/.exec(output)?.[1] ?? Number.NaN);
  const line = transaction.split("\n")[number - 1];
  return line === undefined ? "" : ` at line ${number} "${line.slice(0, 400)}"`;
}

/** Passes the output of iptables-save for IPv4 to `take`, in pieces cut anywhere. */
type ReadRules = (take: (text: string) => void) => Promise<void>;

interface RouteLocalnetOptions {
  /** Whether node ports on localhost are served. */
  readonly isWanted: boolean;
  readonly read: ReadRules;
  /** Whether the sysctl must not be changed: for `--diff` and `--dry-run`. */
  readonly isReadOnly: boolean;
  readonly sysctls: Sysctls;
  readonly log: Log;
}

const stays = "route_localnet stays set; keeping the rules that guard 127.0.0.1";

/**
 * Returns the object that sets and resets the sysctl `route_localnet` of this node.
 *
 * Node ports on 127.0.0.1 need the sysctl. Without the guard, a rule in filter INPUT, it opens every service bound to
 * 127.0.0.1 to the node's neighbours (CVE-2020-8558). The returned object therefore sets the sysctl only after the
 * guard is committed.
 */
export function openRouteLocalnet(options: RouteLocalnetOptions): Promise<GuardedSysctl> {
  return GuardedSysctl.open({
    ...options,
    name: routeLocalnet,
    isRecorded: () => hasMarker(options.read),
    onNotSet: "node ports on 127.0.0.1 will not work",
    onNotReset: stays,
  });
}

/** Whether the installed rules say that an earlier run of kpng set the sysctl. */
async function hasMarker(read: ReadRules): Promise<boolean> {
  let isFound = false;
  let rest = "";
  const take = (text: string): void => {
    const all = rest + text;
    isFound ||= all.includes(localnetMarker);
    rest = all.slice(-localnetMarker.length);
  };
  await read(take).catch((error: unknown) => {
    // The sync reports it, and retries until the table can be read. The marker is most likely in the other table.
    if (!(error instanceof BackendIptablesError && error.code === "TABLE_INCOMPATIBLE")) throw error;
  });
  return isFound;
}

/**
 * Resets the sysctl before `removeRules` removes the chains with prefix `prefix`, the guard among them. Returns whether
 * the guard may be removed.
 *
 * The sysctl stays as it is if kpng did not set it, or if another kpng instance or kube-proxy still guards 127.0.0.1 on
 * this node. If it cannot be reset, the guard must stay.
 *
 * `saved` is the output of iptables-save for IPv4, of all variants together.
 */
export async function resetBeforeCleanup(saved: string, prefix: string, sysctls: Sysctls, log: Log): Promise<boolean> {
  const lines = saved.split("\n");
  const guards = lines.filter((line) => line.includes(localnetMarker));
  const isOurs = guards.some((line) => line.startsWith(`-A ${prefix}`));
  const isGuardedByOthers =
    guards.some((line) => !line.startsWith(`-A ${prefix}`)) ||
    (saved.includes(":KUBE-NODEPORTS") &&
      lines.some(
        (line) => line.startsWith("-A KUBE-FIREWALL") && line.includes("block incoming localnet connections"),
      ));
  if (!isOurs || isGuardedByOthers || (await sysctls.read(routeLocalnet)) === 0) return true;
  try {
    await sysctls.ensure(routeLocalnet, 0);
    log.info("route_localnet reset to 0, as before kpng set it");
    return true;
  } catch (error) {
    log.error(stays, { reason: reasonOf(error) });
    return false;
  }
}
