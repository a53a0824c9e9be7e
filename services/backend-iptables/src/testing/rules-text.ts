import type { ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { DesiredChains } from "../diff/desired-chains.ts";
import { renderJumps } from "../render/jumps.ts";
import { renderFixedChains } from "../render/render-fixed-chains.ts";
import type { RenderOptions } from "../render/render-options.ts";
import { renderService } from "../render/render-service.ts";
import { splitChainId, tables } from "../render/table.ts";

/**
 * Returns all rules of one family as iptables-save would print them. The tests of outcomes trace packets through this
 * text, and those of `findDamage` read it back.
 */
export function rulesText(plans: Iterable<ServicePlan>, options: RenderOptions): string {
  const chains = new DesiredChains(renderFixedChains(options));
  for (const plan of plans) chains.put(plan.key, renderService(plan, options));
  chains.takeTouched();
  const declared = new Map(tables.map((table) => [table, [] as string[]]));
  const rules = new Map(tables.map((table) => [table, [] as string[]]));
  for (const [id, jumps] of renderJumps(options)) {
    const { table, chain } = splitChainId(id);
    for (const jump of jumps) rules.get(table)?.push(`-A ${chain} ${jump}\n`);
  }
  for (const [id, body] of chains.bodies) {
    const { table, chain } = splitChainId(id);
    declared.get(table)?.push(`:${chain} - [0:0]\n`);
    rules.get(table)?.push(body);
  }
  return tables
    .map((table) => [`*${table}\n`, ...(declared.get(table) ?? []), ...(rules.get(table) ?? [])].join(""))
    .join("");
}
