import type { ProxyHost } from "@kpng/backend-kit/proxy/proxy-host.ts";
import type { OpenRuleSets } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import { conntrackLiberal } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { maxChainsOf, type Tools, type Variant } from "../read/find-tools.ts";
import { openTools } from "../read/open-tools.ts";
import { scanRules } from "../read/read-rules.ts";
import { runTool } from "../read/run-tool.ts";
import type { RuleSettings } from "../render/make-render-options.ts";
import type { IptablesChange } from "./iptables-change.ts";
import { IptablesRuleSet, type Kernel } from "./iptables-rule-set.ts";
import { observeRules } from "./observe-rules.ts";
import { countersInUse, PacketCounters } from "./packet-counters.ts";
import { type RestoreLimits, restoreRules } from "./restore-rules.ts";
import { openRouteLocalnet } from "./route-localnet.ts";

/** Options of `openRuleSets`, from the command line. */
export interface OpenOptions extends RestoreLimits {
  readonly settings: RuleSettings;
  readonly variant: Variant | "auto";
}

/**
 * Opens the rule set of each family that the node has tools for. `iptablesBackend` passes it to `proxyBackend`. This is
 * the only file that connects `IptablesRuleSet` to the tools, the sysctls and the metrics of a node.
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
    const kernel = openKernel(tools, options, host);
    const { read, restore } = kernel;
    const { prefix } = settings.names;
    const isWanted = host.settings.isLoopbackNodePorts;
    ruleSets.push(
      new IptablesRuleSet({
        family,
        settings,
        kernel,
        counters: isReadOnly
          ? countersInUse(prefix, read)
          : new PacketCounters({ prefix, run: runTool, restore, log: host.log }),
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
function openKernel(tools: Tools, { lockSeconds, timeoutMs }: OpenOptions, { destination }: ProxyHost): Kernel {
  const restore = async (transaction: string): Promise<void> => {
    if (destination.kind === "print") destination.print(`# ${tools.restore} --noflush\n${transaction}`);
    if (destination.kind === "kernel") {
      await restoreRules(transaction, { tools, run: runTool, lockSeconds, timeoutMs });
    }
  };
  return {
    read: (take) => scanRules(tools, runTool, timeoutMs, take),
    restore,
    maxChains: maxChainsOf(tools),
  };
}
