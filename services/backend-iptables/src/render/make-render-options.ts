import type { Family } from "@kpng/model/address.ts";
import { type NodeFacts, planNode } from "@kpng/service-plan/plan-node.ts";
import type { CounterNames, LocalnetGuard, RenderOptions } from "./render-options.ts";
import type { Settings } from "./settings.ts";

/** The state of the node that rules depend on besides the Services. */
export interface RenderFacts extends NodeFacts {
  /** See {@link RenderOptions.isConntrackLiberal}. */
  readonly isConntrackLiberal: boolean;
  readonly counters?: CounterNames | undefined;
  /** For IPv4. Default "others" with node ports on loopback addresses, else "none". */
  readonly localnetGuard?: LocalnetGuard | undefined;
}

/** Returns the options of the rules of one family. Pure. */
export function makeRenderOptions(settings: Settings, family: Family, facts: RenderFacts): RenderOptions {
  const { isConntrackLiberal, counters, localnetGuard } = facts;
  const node = planNode(settings, family, facts);
  return {
    node,
    names: settings.names,
    masqueradeMark: 2 ** settings.masqueradeBit,
    localnetGuard: family === "v6" ? "none" : (localnetGuard ?? (node.isLoopbackNodePorts ? "others" : "none")),
    isConntrackLiberal,
    counters,
  };
}
