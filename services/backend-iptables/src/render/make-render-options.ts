import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import type { ChainNames } from "./chain-names.ts";
import type { CounterNames, LocalnetGuard, RenderOptions } from "./render-options.ts";

/**
 * Settings of the rules of one instance, for both families. `backend.ts` makes them; they never change during a run.
 */
export interface RuleSettings {
  readonly names: ChainNames;
  /** Bit of the packet mark for packets that must get the node's address, 0 to 31. */
  readonly masqueradeBit: number;
}

/** The state of the kernel that rules depend on. `IptablesRuleSet` finds it out before each sync. */
interface KernelFacts {
  /** True if the sysctl nf_conntrack_tcp_be_liberal is set; packets are then not dropped as INVALID. */
  readonly isConntrackLiberal: boolean;
  readonly counters?: CounterNames | undefined;
  /** For IPv4. Default "others" with node ports on loopback addresses, else "none". */
  readonly localnetGuard?: LocalnetGuard | undefined;
}

/**
 * Joins the settings of the command line, the node's part of the plan and the state of the kernel into the options that
 * all renderers take. `IptablesRuleSet` calls it at the start of each sync. Separate from the rule set, which reads the
 * state of the kernel, because this function is pure.
 */
export function makeRenderOptions(settings: RuleSettings, node: NodePlan, facts: KernelFacts): RenderOptions {
  const { isConntrackLiberal, counters, localnetGuard } = facts;
  return {
    node,
    names: settings.names,
    masqueradeMark: 2 ** settings.masqueradeBit,
    localnetGuard: node.family === "v6" ? "none" : (localnetGuard ?? (node.isLoopbackNodePorts ? "others" : "none")),
    isConntrackLiberal,
    counters,
  };
}
