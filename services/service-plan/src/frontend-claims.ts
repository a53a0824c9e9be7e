import { addressAndPort } from "@kpng/model/address.ts";
import { compareText, getOrMake } from "@kpng/model/collections.ts";
import type { Service, ServiceKey } from "@kpng/model/service.ts";
import type { Frontend, ServicePlan, WholeFrontend } from "./service-plan.ts";

/**
 * Identifies a frontend: an address and port at which Services answer. *Shape:* `10.96.0.10:80/TCP`,
 * `[fd00::1]:80/TCP`, `node port 30080/TCP`, `198.51.100.10 as a whole`. {@link FrontendClaims} decides which Service is
 * served if several claim the same frontend.
 */
export type FrontendId = string;

/** Where a frontend answers: an address and port, a node port, or a whole address without protocol and port. */
type Place = Partial<Pick<Frontend | WholeFrontend, "address" | "protocol" | "port">>;

/** Returns the identifier of a frontend. */
export function frontendId({ address, protocol, port }: Place): FrontendId {
  if (protocol === undefined || port === undefined) return wholeId(address ?? "");
  // Use `join`, whose result is stored in one piece; the result of a template would also keep its parts in memory.
  return [address === undefined ? `node port ${port}` : addressAndPort(address, port), protocol].join("/");
}

function wholeId(address: string): FrontendId {
  return [address, "as a whole"].join(" ");
}

/** Address, port and protocol in the identifier of a port's frontend with an address. */
const portIdPattern = /^(?:\[(?<v6>[^\]]+)\]|(?<v4>[\d.]+)):(?<port>\d+)\/(?<protocol>\w+)$/;

/** A Service in its role as claimant of frontends of one kind. */
export interface Claimant extends Pick<Service, "createdSeconds" | "uid"> {
  readonly key: ServiceKey;
  readonly kind: Frontend["kind"];
}

/**
 * Rank of each kind of frontend, most trustworthy first: the API server allots cluster IPs, the load balancer sets its
 * IPs in the status, but external IPs are chosen by the creator of a Service.
 */
const ranks: Readonly<Record<Frontend["kind"], number>> = {
  clusterIP: 0,
  loadBalancerIP: 1,
  externalIP: 2,
  nodePort: 3,
};

/**
 * Compares two claims to one frontend; the claim that sorts first is served.
 *
 * Cluster IPs come before load-balancer IPs, external IPs and node ports. Among equals, the older Service comes first,
 * by creation time and then by UID. Services whose creation time is unknown (from KPNG's watcher or a state file) come
 * last, ordered by namespace and name; any order would be arbitrary, but it must be the same on all nodes. Endpoints do
 * not count, because a Service that lost them for a moment would lose its traffic to a Service that waits for such a
 * moment.
 */
export function compareClaimants(a: Claimant, b: Claimant): number {
  return (
    ranks[a.kind] - ranks[b.kind] ||
    // Infinity − Infinity is not a number, which counts as equal.
    (a.createdSeconds ?? Infinity) - (b.createdSeconds ?? Infinity) ||
    compareText(a.uid ?? "", b.uid ?? "") ||
    compareText(a.key, b.key)
  );
}

/** Two Services that claim the same frontend. */
export interface Clash {
  readonly frontend: FrontendId;
  /** The owner of the frontend. */
  readonly served: ServiceKey;
  /** The Service that claims the frontend in vain and gets no packets there. */
  readonly shadowed: ServiceKey;
}

/**
 * Determines the owner of each frontend of one family if several Services claim the same address and port, or the same
 * node port; {@link compareClaimants} defines the order. The creator of a Service may give it any external IP, even one
 * that belongs to another Service (CVE-2020-8554), so the order must not depend on anything that the creator can
 * choose, except among Services of unknown age.
 *
 * As in kube-proxy, a claim is to an address, protocol and port together: if another Service has the same IP as an
 * external IP, it is served at the ports that the owner of the cluster IP does not use. A claim to a whole address is a
 * claim of its own: it competes only with claims of other Services to the same whole address, and gets what the claims
 * to its ports leave.
 *
 * `FamilyPlanner` in backend-kit puts the plan of each Service; `indexPlans` and `kpng explain` in the watcher do so
 * for a whole node. The outcome depends only on the last put of each Service, never on the order of puts.
 *
 * *Cost:* a put takes time proportional to the Service's number of frontends; a frontend takes about 300 bytes.
 */
export class FrontendClaims {
  /** The claimants of each frontend, its owner first. A single claimant is stored without an array. */
  readonly #claimants = new Map<FrontendId, Claimant | readonly Claimant[]>();
  readonly #byService = new Map<ServiceKey, readonly FrontendId[]>();
  readonly #contested = new Set<FrontendId>();
  /** Number of claims to whole addresses. Without any, the other fields about them cost nothing. */
  #wholeCount = 0;
  /** The claimed ports of each address; undefined until a plan with whole addresses needs them. */
  #portsByAddress: ReadonlyMap<string, WholeFrontend["except"]> | undefined;

  /**
   * Replaces the claims of a Service with the claims in its plan; returns the frontends that other Services gained or
   * lost.
   */
  put({ key, createdSeconds, uid, ports, whole }: ServicePlan): ReadonlySet<FrontendId> {
    const claims = new Map<FrontendId, Claimant>();
    const byKind = new Map<Frontend["kind"], Claimant>();
    for (const { frontends } of whole === undefined ? ports : [...ports, whole]) {
      for (const frontend of frontends) {
        const { kind } = frontend;
        claims.set(
          frontendId(frontend),
          getOrMake(byKind, kind, () => ({ key, kind, createdSeconds, uid })),
        );
      }
    }
    return this.#replace(key, claims);
  }

  /** Removes a Service; returns the frontends that other Services gained. */
  delete(key: ServiceKey): ReadonlySet<FrontendId> {
    return this.#replace(key, new Map());
  }

  /** Returns the Service that answers at a frontend; undefined if no Service claims it. */
  ownerOf(id: FrontendId): ServiceKey | undefined {
    return this.#claimantsOf(id)[0]?.key;
  }

  /**
   * Returns the plan without the frontends that other Services own, and with the exceptions of its whole addresses.
   *
   * *Cost:* for a plan with whole addresses after a change, O(frontends of all Services).
   */
  withOwned(plan: ServicePlan): ServicePlan {
    const isOwned = (frontend: Frontend | WholeFrontend): boolean => this.ownerOf(frontendId(frontend)) === plan.key;
    if (plan.whole === undefined && plan.ports.every(({ frontends }) => frontends.every(isOwned))) return plan;
    const { whole, ...others } = plan;
    const ports = plan.ports.map((port) => ({ ...port, frontends: port.frontends.filter(isOwned) }));
    const owned = whole?.frontends.filter(isOwned) ?? [];
    if (whole === undefined || owned.length === 0) return { ...others, ports };
    this.#portsByAddress ??= portsByAddress(this.#claimants.keys());
    const ofAddress = this.#portsByAddress;
    const frontends = owned.map((each) => ({ ...each, except: ofAddress.get(each.address) ?? [] }));
    return { ...others, ports, whole: { ...whole, frontends } };
  }

  /** All current clashes; O(frontends that several Services claim). */
  get clashes(): readonly Clash[] {
    return [...this.#contested].flatMap((frontend) => {
      const [served, ...others] = this.claimantsOf(frontend);
      return served === undefined ? [] : others.map((shadowed) => ({ frontend, served, shadowed }));
    });
  }

  /** Returns the Services that claim a frontend, its owner first. */
  claimantsOf(id: FrontendId): readonly ServiceKey[] {
    return this.#claimantsOf(id).map(({ key }) => key);
  }

  #claimantsOf(id: FrontendId): readonly Claimant[] {
    const claimants = this.#claimants.get(id) ?? [];
    return "key" in claimants ? [claimants] : claimants;
  }

  #replace(key: ServiceKey, claims: ReadonlyMap<FrontendId, Claimant>): ReadonlySet<FrontendId> {
    const changed = new Set<FrontendId>();
    for (const id of new Set([...claims.keys(), ...(this.#byService.get(key) ?? [])])) {
      const before = this.ownerOf(id);
      this.#setClaim(id, key, claims.get(id));
      const after = this.ownerOf(id);
      if (before !== after && (isOther(before, key) || isOther(after, key))) changed.add(id);
      if ((before === undefined) !== (after === undefined)) this.#countChange(id, after !== undefined, changed);
    }
    if (claims.size === 0) this.#byService.delete(key);
    else this.#byService.set(key, [...claims.keys()]);
    return changed;
  }

  /**
   * Keeps account of a frontend that has got its first claim or lost its last one. Adds to `changed` the whole address
   * at which it begins or ends to be an exception.
   */
  #countChange(id: FrontendId, isClaimed: boolean, changed: Set<FrontendId>): void {
    this.#portsByAddress = undefined;
    if (id.endsWith(wholeId(""))) this.#wholeCount += isClaimed ? 1 : -1;
    else if (this.#wholeCount > 0) {
      const { v4, v6 } = portIdPattern.exec(id)?.groups ?? {};
      const whole = wholeId(v4 ?? v6 ?? "");
      if (this.#claimants.has(whole)) changed.add(whole);
    }
  }

  /** Sets or removes a Service's claim to a frontend. `claim` is undefined if the Service no longer claims it. */
  #setClaim(id: FrontendId, key: ServiceKey, claim: Claimant | undefined): void {
    const others = this.#claimantsOf(id).filter((each) => each.key !== key);
    const all = claim === undefined ? others : [...others, claim];
    const [only] = all;
    if (only === undefined) this.#claimants.delete(id);
    else this.#claimants.set(id, all.length === 1 ? only : all.sort(compareClaimants));
    if (all.length > 1) this.#contested.add(id);
    else this.#contested.delete(id);
  }
}

/** Groups the ports of frontends with an address by this address, in a fixed order. */
function portsByAddress(ids: Iterable<FrontendId>): ReadonlyMap<string, WholeFrontend["except"]> {
  const found = new Map<string, Pick<Frontend, "protocol" | "port">[]>();
  for (const id of ids) {
    const { v4, v6, port, protocol } = portIdPattern.exec(id)?.groups ?? {};
    const address = v4 ?? v6;
    if (address === undefined || (protocol !== "TCP" && protocol !== "UDP" && protocol !== "SCTP")) continue;
    getOrMake(found, address, () => []).push({ protocol, port: Number(port) });
  }
  for (const ports of found.values()) {
    ports.sort((a, b) => a.port - b.port || compareText(a.protocol, b.protocol));
  }
  return found;
}

function isOther(owner: ServiceKey | undefined, key: ServiceKey): boolean {
  return owner !== undefined && owner !== key;
}
