import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { NodeView, ServiceView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Log } from "@kpng/process/log.ts";
import { type Clash, FrontendClaims, type FrontendId } from "@kpng/service-plan/frontend-claims.ts";
import { type ProxySettings, planNode } from "@kpng/service-plan/plan-node.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import type { ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { Gauge, type Registry } from "prom-client";
import { forEachService } from "./for-each-service.ts";
import type { FamilyPlan } from "./rule-set.ts";

interface PlanUpdate {
  readonly plan: FamilyPlan;
  readonly touched: ReadonlySet<ServiceKey> | "all";
}

/**
 * Computes service plans of one IP family from the newest view: what the rules must do, before any kernel mechanism is
 * chosen. If several Services claim the same frontend (address, port and protocol), the planner decides which one is
 * served.
 *
 * *Bound:* the claims to frontends; see {@link FrontendClaims}. Plans are not kept: they would take more memory than the
 * view.
 */
export class FamilyPlanner {
  readonly #settings: ProxySettings;
  readonly #family: Family;
  #claims = new FrontendClaims();
  readonly #omitted = new Map<ServiceKey, number>();
  readonly #servesWholeAddresses: boolean;
  readonly #unserved = new Set<ServiceKey>();
  /** The last node plan as JSON, by which it is compared; "" before the first. */
  #nodeText = "";

  /** `servesWholeAddresses`: see `RuleSet`. */
  constructor(settings: ProxySettings, family: Family, servesWholeAddresses: boolean) {
    this.#settings = settings;
    this.#family = family;
    this.#servesWholeAddresses = servesWholeAddresses;
  }

  get clashes(): readonly Clash[] {
    return this.#claims.clashes;
  }

  /** Services with too many external IPs, each with the number of external IPs that are not served. */
  get omitted(): ReadonlyMap<ServiceKey, number> {
    return this.#omitted;
  }

  /** Services that ask for whole addresses, which the rule set does not serve. */
  get unserved(): ReadonlySet<ServiceKey> {
    return this.#unserved;
  }

  /**
   * Plans a view. `touched` contains the Services that may differ from the previous view.
   *
   * The frontends of all touched Services are claimed here; `FamilyPlan.service` then plans one Service at a time.
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
    const make = (service: ServiceView): ServicePlan => {
      const plan = planService(service, node);
      if (plan.whole === undefined || this.#servesWholeAddresses) return plan;
      this.#unserved.add(plan.key);
      return planService({ ...service, service: { ...service.service, mapIP: false } }, node);
    };
    const claim = (key: ServiceKey): ReadonlySet<FrontendId> => {
      this.#unserved.delete(key);
      const held = view.services.get(key);
      // The frontends do not depend on the endpoints, which would have to be decoded.
      const plan = held && make({ service: held.service, endpoints: [] });
      if (plan?.omittedExternalIPs === undefined) this.#omitted.delete(key);
      else this.#omitted.set(key, plan.omittedExternalIPs);
      return plan === undefined ? this.#claims.delete(key) : this.#claims.put(plan);
    };
    const service = (key: ServiceKey): ServicePlan | undefined => {
      const held = view.services.get(key);
      return held && this.#claims.withOwned(make(held));
    };
    const plan: FamilyPlan = {
      node,
      service,
      keys: () => view.services.keys(),
      view: (key) => view.services.get(key),
    };
    // Every plan depends on the node plan, so a change of that plan touches all Services.
    if (touched !== "all" && isSameNode) {
      const all = new Set(touched);
      // A Service that gains or loses a frontend also counts as touched.
      for (const key of touched) {
        for (const id of claim(key)) for (const claimant of this.#claims.claimantsOf(id)) all.add(claimant);
      }
      return { plan, touched: all };
    }
    this.#claims = new FrontendClaims();
    this.#omitted.clear();
    this.#unserved.clear();
    await forEachService(view.services.keys(), claim);
    return { plan, touched: "all" };
  }
}

/**
 * Reports Services that ask for whole addresses (`Service.mapIP`) on a node whose rules do not serve them. Each is logged
 * once, and again after it no longer asked.
 */
export class UnservedReport {
  readonly #log: Log;
  readonly #gauge: Gauge;
  #reported: ReadonlySet<ServiceKey> = new Set();

  constructor(log: Log, registry: Registry | undefined) {
    this.#log = log;
    this.#gauge = new Gauge({
      name: "kpng_backend_unserved_whole_addresses",
      help: "Services that ask for whole addresses (annotation kpng.dev/map-ip), of which this backend serves only the ports",
      registers: registry === undefined ? [] : [registry],
    });
  }

  /** Reports the Services that are currently not served as they ask. */
  report(unserved: ReadonlySet<ServiceKey>): void {
    for (const service of unserved) {
      if (this.#reported.has(service)) continue;
      this.#log.error("a Service asks for whole addresses: this backend serves only its ports", { service });
    }
    this.#reported = unserved;
    this.#gauge.set(unserved.size);
  }
}

/**
 * Maximum number of Services with their own metric series. All further Services share one, because users who may create
 * Services decide how many there are.
 */
const maxServices = 20;

/**
 * Reports Services that claim a frontend (address, port and protocol) of another Service. Each pair of Services is
 * logged once, and again if the clash returns after it was resolved; the gauge shows the frontends that are currently
 * claimed in vain.
 */
export class ClashReport {
  readonly #log: Log;
  readonly #gauge: Gauge<"service">;
  /** Pairs of Services that clashed at the last report. *Shape:* `a/served b/shadowed`. */
  #reported: ReadonlySet<string> = new Set();

  constructor(log: Log, registry: Registry | undefined) {
    this.#log = log;
    this.#gauge = new Gauge({
      name: "kpng_backend_refused_claims",
      help: "Addresses with port, and node ports, that a Service claims and another one has; others: all Services but the 20 with most",
      labelNames: ["service"] as const,
      registers: registry === undefined ? [] : [registry],
    });
    this.#gauge.set({ service: "others" }, 0);
  }

  report(clashes: readonly Clash[]): void {
    const pairs = new Map<string, Clash>();
    const claims = new Map<string, Set<FrontendId>>();
    for (const clash of clashes) {
      const { frontend, served, shadowed } = clash;
      const pair = `${served} ${shadowed}`;
      if (!pairs.has(pair)) pairs.set(pair, clash);
      // Use a set, because a node port clashes in both families.
      claims.set(shadowed, (claims.get(shadowed) ?? new Set()).add(frontend));
    }
    for (const [pair, { frontend, served, shadowed }] of pairs) {
      if (this.#reported.has(pair)) continue;
      this.#log.error("two Services have the same address and port: one keeps the place, the other gets no packets", {
        frontend,
        served,
        shadowed,
        claims: claims.get(shadowed)?.size ?? 0,
      });
    }
    this.#reported = new Set(pairs.keys());
    this.#count(claims);
  }

  #count(claims: ReadonlyMap<string, ReadonlySet<FrontendId>>): void {
    this.#gauge.reset();
    const most = [...claims].sort(([, a], [, b]) => b.size - a.size);
    for (const [service, { size }] of most.slice(0, maxServices)) this.#gauge.set({ service }, size);
    const others = most.slice(maxServices).reduce((sum, [, { size }]) => sum + size, 0);
    this.#gauge.set({ service: "others" }, others);
  }
}
