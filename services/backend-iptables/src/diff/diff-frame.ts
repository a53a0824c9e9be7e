import { adoptChains } from "../read/adopt-chains.ts";
import type { InstalledRules } from "../read/installed-rules.ts";
import { renderJumps } from "../render/jumps.ts";
import { renderFixedChains } from "../render/render-fixed-chains.ts";
import type { RenderOptions } from "../render/render-options.ts";
import { chainId } from "../render/table.ts";
import { DesiredChains } from "./desired-chains.ts";
import { diffChains, type RulesetChange } from "./diff-chains.ts";
import { diffJumps } from "./diff-jumps.ts";

/**
 * Returns the change that restores the frame of our rules: the jumps, and the chains that do not depend on Services. A
 * chain with rules of Services is only created if it is missing, because jumps lead to it. Pure.
 *
 * `IptablesRuleSet` calls it in `repairFrame`, at a start with rules that may be newer than the view known so far.
 * Separate from `diffChains`, which would delete the chains of Services that this view lacks.
 */
export function diffFrame({ chains, jumps }: InstalledRules, options: RenderOptions): RulesetChange {
  const { names } = options;
  const frame = new DesiredChains(renderFixedChains(options));
  frame.takeTouched();
  const own = new Set([
    ...(["FORWARD", "LOCALNET"] as const).map((name) => chainId("filter", names.fixed(name))),
    ...(["MARK-MASQ", "POSTROUTING"] as const).map((name) => chainId("nat", names.fixed(name))),
  ]);
  const ids = [...frame.bodies.keys()].filter((id) => !chains.has(id) || own.has(id));
  return diffChains(adoptChains(chains, frame.bodies), frame.bodies, ids, diffJumps(jumps, renderJumps(options)));
}
