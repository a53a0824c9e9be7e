import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { drainingEndpoints } from "@kpng/service-plan/draining-endpoints.ts";
import type { Frontend, ServicePortPlan } from "@kpng/service-plan/service-plan.ts";
import { algorithmOf, type BalancedEndpoint, Balancer } from "../balance/balancer.ts";
import type { Senders } from "../listen/gate.ts";
import { type FrontendOwner, ServedFrontend } from "./served-frontend.ts";
import type { UserspaceRuntime } from "./userspace-runtime.ts";

/** Returns the id of a frontend. *Shape:* `TCP 10.96.0.1 80`, `UDP * 30053`. */
const idOf = ({ address, protocol, port }: Pick<Frontend, "address" | "protocol" | "port">): string =>
  `${protocol} ${address ?? "*"} ${port}`;

/**
 * The frontends and balancers of one family, as the last plan has them. SCTP has no sockets in Node.js; its frontends
 * are left out.
 * It opens nothing: {@link update} tells which frontends changed.
 */
export class FrontendTable {
  readonly #runtime: UserspaceRuntime;
  readonly #senders: Senders;
  readonly #frontends = new Map<string, ServedFrontend>();
  readonly #idsByService = new Map<ServiceKey, ReadonlySet<string>>();
  readonly #balancersByService = new Map<ServiceKey, ReadonlyMap<string, Balancer>>();

  constructor(runtime: UserspaceRuntime, senders: Senders) {
    this.#runtime = runtime;
    this.#senders = senders;
  }

  get all(): Iterable<ServedFrontend> {
    return this.#frontends.values();
  }

  /** Keys of the Services that have frontends or balancers. */
  get keys(): Iterable<ServiceKey> {
    return this.#balancersByService.keys();
  }

  has(service: ServiceKey): boolean {
    return this.#balancersByService.has(service);
  }

  /**
   * Takes the plans of these Services. Returns the frontends that may have to be opened or closed. A frontend that
   * passes to another Service stays open.
   */
  update(plan: FamilyPlan, keys: Iterable<ServiceKey>): readonly ServedFrontend[] {
    const wanted = new Map<string, { readonly frontend: Frontend; readonly owner: FrontendOwner }>();
    const lost = new Set<string>();
    for (const key of keys) {
      for (const id of this.#idsByService.get(key) ?? []) lost.add(id);
      const ids = new Set<string>();
      for (const [port, balancer] of this.#updateBalancers(plan, key)) {
        for (const [at, frontend] of port.frontends.entries()) {
          const id = idOf(frontend);
          const isWithinShare = ids.size < this.#runtime.settings.maxListenersPerService;
          ids.add(id);
          wanted.set(id, { frontend, owner: { name: port.name, isFirst: at === 0, isWithinShare, balancer } });
        }
      }
      if (ids.size === 0) this.#idsByService.delete(key);
      else this.#idsByService.set(key, ids);
    }
    const changed = new Set<ServedFrontend>();
    for (const id of lost) {
      const known = this.#frontends.get(id);
      if (wanted.has(id) || known === undefined) continue;
      known.isWanted = false;
      changed.add(known);
    }
    for (const [id, { frontend, owner }] of wanted) {
      const known = this.#frontends.get(id);
      const served = known ?? new ServedFrontend(id, frontend, owner, this.#senders, this.#runtime);
      known?.update(frontend, owner);
      this.#frontends.set(id, served);
      changed.add(served);
    }
    return [...changed];
  }

  /** Forgets a frontend that no plan has. */
  delete(frontend: ServedFrontend): void {
    this.#frontends.delete(frontend.id);
  }

  #updateBalancers(plan: FamilyPlan, key: ServiceKey): readonly (readonly [ServicePortPlan, Balancer])[] {
    const { settings, table } = this.#runtime;
    const service = plan.service(key);
    const view = plan.view?.(key);
    const before = this.#balancersByService.get(key) ?? new Map<string, Balancer>();
    const nowMs = performance.now();
    const after = new Map<string, Balancer>();
    const ports = (service?.ports ?? []).filter(({ protocol }) => protocol !== "SCTP");
    const pairs = ports.map((port) => {
      const id = `${port.protocol} ${port.name}`;
      const draining = drainingEndpoints(view, port, plan.node.family);
      const isLoop = (endpoint: BalancedEndpoint): boolean => this.#runtime.isLoop(port, endpoint);
      const own = { plan: port, algorithm: algorithmOf(view, settings.algorithm), draining, isLoop };
      const known = before.get(id);
      known?.update(own, nowMs);
      const balancer = known ?? new Balancer(table.of(key), own, settings.maxAffinityClients, nowMs);
      after.set(id, balancer);
      return [port, balancer] as const;
    });
    for (const [id, balancer] of before) if (!after.has(id)) balancer.close(nowMs);
    if (after.size === 0) this.#balancersByService.delete(key);
    else this.#balancersByService.set(key, after);
    return pairs;
  }
}
