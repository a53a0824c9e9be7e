import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { type Clash, FrontendClaims, type FrontendId } from "@kpng/service-plan/frontend-claims.ts";
import { type ProxySettings, planNode } from "@kpng/service-plan/plan-node.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import type { ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { nextTurn } from "../sync/next-turn.ts";
import { PlanDigest } from "./plan-digest.ts";
import type { FamilyPlan } from "./rule-set.ts";

/** A plan, and the Services whose plan may differ from the plan before. */
export interface PlanUpdate {
  readonly plan: FamilyPlan;
  readonly touched: ReadonlySet<ServiceKey> | "all";
}

/** Number of Services planned between two turns of the event loop, so that health is answered during a full plan. */
const servicesPerTurn = 100;

/**
 * Computes service plans of one IP family from the newest view: what the rules must do, before any kernel mechanism is
 * chosen. If several Services have the same frontend (address, port and protocol), it decides which one is served.
 *
 * *Bound:* the claims to frontends, see {@link FrontendClaims}, and the plan of each touched Service until the rule set
 * has asked for it.
 */
export class FamilyPlanner {
  readonly #settings: ProxySettings;
  readonly #family: Family;
  #claims = new FrontendClaims();
  readonly #digest = new PlanDigest();
  readonly #omitted = new Map<ServiceKey, number>();
  /** The last node plan as text. */
  #nodeText = "";

  constructor(settings: ProxySettings, family: Family) {
    this.#settings = settings;
    this.#family = family;
  }

  /** Frontends that several Services claim. */
  get clashes(): readonly Clash[] {
    return this.#claims.clashes;
  }

  /** Services with too many external IPs, and the number of those that are not served. */
  get omitted(): ReadonlyMap<ServiceKey, number> {
    return this.#omitted;
  }

  /** Digest of all plans of the last view; frontends that several Services claim are in each of their plans. */
  get digest(): string {
    return this.#digest.text;
  }

  /**
   * Plans a view. `touched` are the Services that may differ from the view before.
   *
   * Every Service whose frontends are claimed is planned once: `FamilyPlan.service` hands out the plan that was made
   * for the claim.
   */
  async plan(
    view: NodeView,
    touched: ReadonlySet<ServiceKey> | "all",
    localAddresses: AddressSet,
  ): Promise<PlanUpdate> {
    const node = planNode(this.#settings, this.#family, { node: view.node, localAddresses });
    const text = JSON.stringify(node);
    const isSameNode = text === this.#nodeText;
    this.#nodeText = text;
    const claimed = new Map<ServiceKey, ServicePlan>();
    const make = (key: ServiceKey): ServicePlan | undefined => {
      const service = view.services.get(key);
      return service === undefined ? undefined : planService(service, node);
    };
    const claim = (key: ServiceKey): ReadonlySet<FrontendId> => {
      const plan = make(key);
      this.#digest.put(key, plan);
      if (plan?.omittedExternalIPs === undefined) this.#omitted.delete(key);
      else this.#omitted.set(key, plan.omittedExternalIPs);
      if (plan === undefined) return this.#claims.delete(key);
      claimed.set(key, plan);
      return this.#claims.put(plan);
    };
    const service = (key: ServiceKey): ServicePlan | undefined => {
      const plan = claimed.get(key) ?? make(key);
      // Kept plans of all Services would need as much memory as the view.
      claimed.delete(key);
      return plan === undefined ? undefined : this.#claims.withOwned(plan);
    };
    const plan: FamilyPlan = {
      ...{ node, service },
      keys: () => view.services.keys(),
      view: (key) => view.services.get(key),
    };
    if (touched !== "all" && isSameNode) {
      const all = new Set(touched);
      // A Service that gains or loses a frontend is touched, too.
      for (const key of touched) {
        for (const id of claim(key)) for (const claimant of this.#claims.claimantsOf(id)) all.add(claimant);
      }
      return { plan, touched: all };
    }
    this.#claims = new FrontendClaims();
    this.#digest.clear();
    this.#omitted.clear();
    let count = 0;
    for (const key of view.services.keys()) {
      claim(key);
      if (++count % servicesPerTurn === 0) await nextTurn();
    }
    return { plan, touched: "all" };
  }
}
