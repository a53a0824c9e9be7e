import { addressAndPort } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import type { Frontend, ServicePlan } from "./service-plan.ts";

/**
 * Identifies a frontend: an address and port at which Services answer. *Shape:* `10.96.0.10:80/TCP`,
 * `[fd00::1]:80/TCP`, `node port 30080/TCP`. {@link FrontendClaims} decides which Service is served if several have the
 * same frontend.
 */
export type FrontendId = string;

/** Returns the identifier of a frontend. */
export function frontendId({ address, protocol, port }: Pick<Frontend, "address" | "protocol" | "port">): FrontendId {
  // A joined text is stored in one piece; a template's result would keep its parts in memory too.
  return [address === undefined ? `node port ${port}` : addressAndPort(address, port), protocol].join("/");
}

/** Two Services that claim the same frontend, although the one that does not get it has endpoints. */
export interface Clash {
  readonly frontend: FrontendId;
  /** The Service that keeps the frontend. It may have no endpoints, if the other one has it as a node port. */
  readonly served: ServiceKey;
  /** The Service with endpoints that gets no packets at the frontend. */
  readonly shadowed: ServiceKey;
}

/**
 * The owner of each frontend, for one family.
 *
 * `FamilyPlanner` of backend-kit puts the plan of each Service, `indexPlans` and `kpng explain` of the watcher do so
 * for a whole node. Separate from `planService`, which knows only one Service.
 *
 * Two Services may have the same address and port, or the same node port. The Service whose `namespace/name` comes
 * first among those with endpoints is served, or the first of all if none has endpoints. The outcome depends on the
 * last put of each Service, never on their order.
 *
 * *Cost:* a put takes time proportional to the frontends of the Service; a frontend takes about 300 bytes.
 */
export class FrontendClaims {
  /** The Services that claim a frontend, its owner first; a single Service without an array. */
  readonly #claimants = new Map<FrontendId, ServiceKey | readonly ServiceKey[]>();
  readonly #byService = new Map<ServiceKey, readonly FrontendId[]>();
  /** Claims from which no sender gets an endpoint; see {@link claimId}. */
  readonly #withoutEndpoints = new Set<string>();
  readonly #contested = new Set<FrontendId>();

  /**
   * Replaces the claims of a Service by those of its plan; returns the frontends that other Services gained or lost.
   */
  put({ key, ports }: ServicePlan): ReadonlySet<FrontendId> {
    const claims = new Map<FrontendId, boolean>();
    for (const { frontends } of ports) {
      for (const frontend of frontends) {
        const { pod, node, outside } = frontend.routes;
        const hasEndpoints = [pod, node, outside].some(({ kind }) => kind === "balance");
        claims.set(frontendId(frontend), hasEndpoints);
      }
    }
    return this.#replace(key, claims);
  }

  /** Forgets a Service; returns the frontends that other Services gained. */
  delete(key: ServiceKey): ReadonlySet<FrontendId> {
    return this.#replace(key, new Map());
  }

  /** The Service that answers at a frontend; undefined if no Service claims it. */
  ownerOf(id: FrontendId): ServiceKey | undefined {
    return this.claimantsOf(id)[0];
  }

  /** All clashes at present; O(frontends that several Services claim). */
  get clashes(): readonly Clash[] {
    return [...this.#contested].flatMap((frontend) => {
      const [served, ...others] = this.claimantsOf(frontend);
      if (served === undefined) return [];
      return others.flatMap((shadowed) =>
        this.#withoutEndpoints.has(claimId(shadowed, frontend)) ? [] : [{ frontend, served, shadowed }],
      );
    });
  }

  /** The Services that claim a frontend, its owner first. */
  claimantsOf(id: FrontendId): readonly ServiceKey[] {
    const claimants = this.#claimants.get(id) ?? [];
    return typeof claimants === "string" ? [claimants] : claimants;
  }

  #replace(key: ServiceKey, claims: ReadonlyMap<FrontendId, boolean>): ReadonlySet<FrontendId> {
    const changed = new Set<FrontendId>();
    for (const id of new Set([...claims.keys(), ...(this.#byService.get(key) ?? [])])) {
      const before = this.ownerOf(id);
      this.#setClaim(id, key, claims.get(id));
      const after = this.ownerOf(id);
      if (before !== after && (isOther(before, key) || isOther(after, key))) changed.add(id);
    }
    if (claims.size === 0) this.#byService.delete(key);
    else this.#byService.set(key, [...claims.keys()]);
    return changed;
  }

  /** `hasEndpoints` is undefined if the Service no longer claims the frontend. */
  #setClaim(id: FrontendId, key: ServiceKey, hasEndpoints: boolean | undefined): void {
    if (hasEndpoints === false) this.#withoutEndpoints.add(claimId(key, id));
    else this.#withoutEndpoints.delete(claimId(key, id));
    const others = this.claimantsOf(id).filter((each) => each !== key);
    const all = hasEndpoints === undefined ? others : [...others, key];
    const [only] = all;
    if (only === undefined) this.#claimants.delete(id);
    else this.#claimants.set(id, all.length === 1 ? only : all.sort((a, b) => this.#compare(id, a, b)));
    if (all.length > 1) this.#contested.add(id);
    else this.#contested.delete(id);
  }

  #compare(id: FrontendId, a: ServiceKey, b: ServiceKey): number {
    const isLast = (key: ServiceKey): number => Number(this.#withoutEndpoints.has(claimId(key, id)));
    return isLast(a) - isLast(b) || compareText(a, b);
  }
}

/** Key of the claim of one Service to one frontend. */
function claimId(key: ServiceKey, id: FrontendId): string {
  return `${key} ${id}`;
}

function isOther(owner: ServiceKey | undefined, key: ServiceKey): boolean {
  return owner !== undefined && owner !== key;
}
