import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { type Clash, FrontendClaims, frontendId } from "@kpng/service-plan/frontend-claims.ts";
import { type ProxySettings, planNode } from "@kpng/service-plan/plan-node.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import type { NodePlan, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { nextTurn } from "../sync/next-turn.ts";
import type { FamilyPlan } from "./rule-set.ts";

/** A plan, and the Services whose plan may differ from the plan before. */
export interface PlanUpdate {
  readonly plan: FamilyPlan;
  readonly touched: ReadonlySet<ServiceKey> | "all";
}

/** After this many Services the event loop gets a turn, so that health answers while all Services are planned. */
const servicesPerTurn = 100;

/**
 * Makes the plans of one family from the newest view, and settles which Service answers where several have the same
 * frontend.
 *
 * *Bound:* the claims to frontends; see {@link FrontendClaims}.
 */
export class FamilyPlanner {
  readonly #settings: ProxySettings;
  readonly #family: Family;
  #claims = new FrontendClaims();
  /** The last node plan as text. */
  #nodeText = "";

  constructor(settings: ProxySettings, family: Family) {
    this.#settings = settings;
    this.#family = family;
  }

  /** Frontends that several Services with endpoints claim. */
  get clashes(): readonly Clash[] {
    return this.#claims.clashes;
  }

  /** `touched` are the Services of the view that may differ from the view before. */
  async plan(
    view: NodeView,
    touched: ReadonlySet<ServiceKey> | "all",
    localAddresses: AddressSet,
  ): Promise<PlanUpdate> {
    const node = planNode(this.#settings, this.#family, { node: view.node, localAddresses });
    const text = JSON.stringify(node);
    const isSameNode = text === this.#nodeText;
    this.#nodeText = text;
    const plan: FamilyPlan = {
      node,
      keys: () => view.services.keys(),
      service: (key) => this.#planOwned(view, key, node),
    };
    if (touched !== "all" && isSameNode) return { plan, touched: this.#claimTouched(view, touched, node) };
    this.#claims = new FrontendClaims();
    let count = 0;
    for (const service of view.services.values()) {
      this.#claims.put(planService(service, node));
      if (++count % servicesPerTurn === 0) await nextTurn();
    }
    return { plan, touched: "all" };
  }

  /** Returns `touched` with the Services that gain or lose a frontend by it. */
  #claimTouched(view: NodeView, touched: ReadonlySet<ServiceKey>, node: NodePlan): ReadonlySet<ServiceKey> {
    const all = new Set(touched);
    for (const key of touched) {
      const service = view.services.get(key);
      const changed = service === undefined ? this.#claims.delete(key) : this.#claims.put(planService(service, node));
      for (const id of changed) for (const claimant of this.#claims.claimantsOf(id)) all.add(claimant);
    }
    return all;
  }

  #planOwned(view: NodeView, key: ServiceKey, node: NodePlan): ServicePlan | undefined {
    const service = view.services.get(key);
    if (service === undefined) return undefined;
    const plan = planService(service, node);
    const isOwned = (frontend: Parameters<typeof frontendId>[0]): boolean =>
      this.#claims.ownerOf(frontendId(frontend)) === key;
    if (plan.ports.every(({ frontends }) => frontends.every(isOwned))) return plan;
    return { ...plan, ports: plan.ports.map((port) => ({ ...port, frontends: port.frontends.filter(isOwned) })) };
  }
}
