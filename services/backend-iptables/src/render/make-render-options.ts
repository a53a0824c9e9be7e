import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import type { CounterNames, LocalnetGuard, RenderOptions } from "./render-options.ts";
import type { RuleSettings } from "./settings.ts";

/** The state of the kernel that rules depend on. */
export interface KernelFacts {
  /** See {@link RenderOptions.isConntrackLiberal}. */
  readonly isConntrackLiberal: boolean;
  readonly counters?: CounterNames | undefined;
  /** For IPv4. Default "others" with node ports on loopback addresses, else "none". */
  readonly localnetGuard?: LocalnetGuard | undefined;
}

/** Returns the options of the rules of one family. Pure. */
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
