import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import { nextTurn } from "@kpng/backend-kit/sync/next-turn.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { recordChain, renderRecord } from "../render/record-rule.ts";
import type { RenderOptions } from "../render/render-options.ts";
import { renderService } from "../render/render-service.ts";
import type { ChainId } from "../render/table.ts";
import type { DesiredChains } from "./desired-chains.ts";

/** After this many Services the event loop gets a turn, so that health answers during a full render. */
const servicesPerTurn = 100;

/**
 * Key of the chain that stores the record of the rules. {@link DesiredChains} keeps chains by Service, and this chain
 * belongs to none. No Service has this key, because names are not empty.
 */
const recordKey: ServiceKey = "/";

/**
 * Renders the touched Services of a plan into `wanted`, and the record by which the backend recognizes its own rules
 * after a restart. "all" also removes the Services that the plan no longer has. Returns the chains that changed.
 *
 * `IptablesRuleSet` calls it in each sync and commits the returned chains. It is separate from {@link DesiredChains},
 * which joins rendered rules but renders none.
 */
export async function putPlan(
  plan: FamilyPlan,
  touched: ReadonlySet<ServiceKey> | "all",
  wanted: DesiredChains,
  options: RenderOptions,
): Promise<ReadonlySet<ChainId>> {
  const keys = touched === "all" ? new Set(plan.keys()) : touched;
  if (touched === "all") for (const key of wanted.services()) if (!keys.has(key)) wanted.put(key, undefined);
  let count = 0;
  for (const key of keys) {
    const service = plan.service(key);
    wanted.put(key, service === undefined ? undefined : renderService(service, options));
    if (++count % servicesPerTurn === 0) await nextTurn();
  }
  const { record } = plan;
  const chains = new Map(record === undefined ? [] : [[recordChain(options.names), [renderRecord(record)]] as const]);
  wanted.put(recordKey, { chains, listed: [] });
  return wanted.takeTouched();
}
