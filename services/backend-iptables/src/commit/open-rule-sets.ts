import type { OpenRuleSets, ProxyHost } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import { conntrackLiberal, routeLocalnet, type Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { scanRules } from "../read/installed-rules.ts";
import {
  BackendIptablesError,
  maxChainsOf,
  openTools,
  type RunTool,
  runTool,
  type Tools,
  type Variant,
} from "../read/tools.ts";
import type { RuleSettings } from "../render/chains.ts";
import { type IptablesChange, IptablesRuleSet, type Kernel } from "./iptables-rule-set.ts";
import { observeRules } from "./observe-rules.ts";

/**
 * Opens the rule set of each family for which the node has tools.
 *
 * Errors: IPTABLES_MISSING for IPv4.
 */
export async function openRuleSets(
  settings: RuleSettings,
  variant: Variant | "auto",
  host: ProxyHost,
): Promise<OpenRuleSets<IptablesChange>> {
  const { destination, sysctls } = host;
  const isReadOnly = destination.kind !== "kernel";
  const ruleSets: IptablesRuleSet[] = [];
  for (const tools of await openTools(variant, runTool, host.log)) {
    const { family } = tools;
    const log = host.log.with({ family });
    const needsLocalnet = family === "v4" && host.settings.isLoopbackNodePorts && !isReadOnly;
    ruleSets.push(
      new IptablesRuleSet({
        family,
        settings,
        kernel: openKernel(tools, host),
        onInstalled: needsLocalnet ? () => setRouteLocalnet(sysctls, log) : undefined,
        isConntrackLiberal: async () => ((await sysctls.read(conntrackLiberal)) ?? 0) !== 0,
        isReadOnly,
      }),
    );
  }
  return { ruleSets, onOutcome: observeRules(host.metrics, ruleSets) };
}

/**
 * Returns one rule set's access to the kernel. With `--dry-run`, transactions are printed; with `--diff`, they are
 * ignored.
 */
function openKernel(tools: Tools, { destination }: ProxyHost): Kernel {
  const restore = async (transaction: string): Promise<void> => {
    if (destination.kind === "print") destination.print(`# ${tools.restore} --noflush\n${transaction}`);
    if (destination.kind === "kernel") await restoreRules(transaction, { tools, run: runTool });
  };
  return { read: (take) => scanRules(tools, runTool, take), restore, maxChains: maxChainsOf(tools) };
}

/**
 * Maximum time to wait for another program to release the iptables-legacy lock, in seconds. The same as in kube-proxy.
 */
const lockSeconds = 5;

/**
 * Commits a transaction with `iptables-restore --noflush`.
 *
 * Errors: RESTORE_REFUSED with the rejected line, after which its table is unchanged but the tables before it are
 * committed; the errors of `run`.
 */
export async function restoreRules(
  transaction: string,
  { tools, run }: { readonly tools: Tools; readonly run: RunTool },
): Promise<void> {
  const command = [tools.restore, "--noflush", "-w", String(lockSeconds)];
  const { exitCode, stderr } = await run(command, { input: transaction });
  if (exitCode === 0) return;
  const output = stderr.trim();
  const lines = transaction.split("\n").length - 1;
  const rejected = describeLine(transaction, output);
  const text = `${tools.restore} rejected a transaction of ${lines} lines (exit status ${exitCode})${rejected}: ${output}`;
  throw new BackendIptablesError("RESTORE_REFUSED", text);
}

/**
 * Returns a description of the line that the tool reports; "" if it reports none.
 *
 * iptables-legacy sends a table to the kernel at COMMIT. If the kernel rejects the table, the tool reports the COMMIT
 * line.
 */
function describeLine(transaction: string, output: string): string {
  const number = Number(/(?:line:? )(\d+)/.exec(output)?.[1] ?? Number.NaN);
  const line = transaction.split("\n")[number - 1];
  return line === undefined ? "" : ` at line ${number} "${line.slice(0, 400)}"`;
}

/**
 * Sets the sysctl `route_localnet` of this node, which node ports on 127.0.0.1 need. Must be called only while the
 * chain LOCALNET guards that address. Never rejects.
 */
async function setRouteLocalnet(sysctls: Sysctls, log: Log): Promise<void> {
  await sysctls
    .ensure(routeLocalnet, 1)
    .catch((error: unknown) => log.error("node ports on 127.0.0.1 will not work", { reason: reasonOf(error) }));
}

/**
 * Resets the sysctl before `removeRules` removes the chains whose names begin with `prefix`, including LOCALNET, which
 * guards 127.0.0.1. The sysctl stays as it is if another kpng instance or kube-proxy still needs it on this node.
 *
 * `saved` is the concatenated output of the iptables-save programs of all variants for IPv4. Errors: SYSCTL_FAILED.
 */
export async function resetBeforeCleanup(saved: string, prefix: string, sysctls: Sysctls, log: Log): Promise<void> {
  const guards = [...saved.matchAll(/^-A (\S+).*block incoming localnet connections/gm)].map(([, chain = ""]) => chain);
  const isOurs = guards.includes(`${prefix}LOCALNET`);
  // kubelet also installs this rule, in its chain KUBE-FIREWALL; KUBE-NODEPORTS is a chain of kube-proxy, which then
  // serves node ports.
  const isNeededByOthers = guards.some((chain) =>
    chain === "KUBE-FIREWALL" ? saved.includes(":KUBE-NODEPORTS") : chain !== `${prefix}LOCALNET`,
  );
  if (!isOurs || isNeededByOthers || (await sysctls.read(routeLocalnet)) === 0) return;
  await sysctls.ensure(routeLocalnet, 0);
  log.info("route_localnet reset to 0");
}
