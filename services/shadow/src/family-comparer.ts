import { readLocalAddresses } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { nextTurn } from "@kpng/backend-kit/sync/next-turn.ts";
import type { Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ProxyMode } from "@kpng/service-plan/outcomes.ts";
import { type ProxySettings, planNode } from "@kpng/service-plan/plan-node.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import { indexPlans } from "@kpng/service-plan/planned-node.ts";
import type { NodePlan, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { type Comparison, comparePackets } from "./compare-packets.ts";
import { readNodeLinks } from "./node-links.ts";
import type { ReadKubeProxy } from "./read-kube-proxy.ts";

type FamilyComparison = Comparison & { readonly hasKubeProxy: boolean };

const servicesPerTurn = 100;

/**
 * Compares kube-proxy's rules with our plans for one family. It returns the last result again as long as the view, the
 * node and the rules are the same. `shadowTask` has one for each family and calls it at an interval.
 *
 * Separate from `comparePackets`, which does the comparison: this class collects its inputs, the rules, the addresses
 * of the node and the plans.
 *
 * *Bound:* the text of kube-proxy's rules; plans are kept only during a comparison.
 */
export class FamilyComparer {
  readonly family: Family;
  readonly #readKubeProxy: ReadKubeProxy;
  readonly #settings: ProxySettings;
  readonly #mode: ProxyMode;
  #last: { readonly view: NodeView; readonly inputs: string; readonly result: FamilyComparison } | undefined;

  /** `mode` is the mode of kube-proxy that our backend behaves like. */
  constructor(family: Family, readKubeProxy: ReadKubeProxy, settings: ProxySettings, mode: ProxyMode) {
    this.family = family;
    this.#readKubeProxy = readKubeProxy;
    this.#settings = settings;
    this.#mode = mode;
  }

  /** Returns the result for the current rules. Errors: SAVE_FAILED. */
  async compare(view: NodeView, signal: AbortSignal): Promise<FamilyComparison> {
    const { family } = this;
    const saved = await this.#readKubeProxy();
    const links = readNodeLinks(family);
    const node = planNode(this.#settings, family, { node: view.node, localAddresses: readLocalAddresses() });
    const inputs = `${JSON.stringify([saved !== undefined, node, links.localCIDRs, links.links])}\n${saved?.text}`;
    if (this.#last?.view === view && this.#last.inputs === inputs) return this.#last.result;
    const planned = indexPlans(node, links.localCIDRs, await planServices(view, node));
    const compared = await comparePackets(saved, planned, { view, links, mode: this.#mode }, signal);
    const result = { ...compared, hasKubeProxy: saved !== undefined };
    if (!signal.aborted) this.#last = { view, inputs, result };
    return result;
  }
}

async function planServices(view: NodeView, node: NodePlan): Promise<readonly ServicePlan[]> {
  const plans: ServicePlan[] = [];
  for (const service of view.services.values()) {
    plans.push(planService(service, node));
    if (plans.length % servicesPerTurn === 0) await nextTurn();
  }
  return plans;
}
