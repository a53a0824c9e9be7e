import { addressAndPort } from "@kpng/model/address.ts";
import type { EndpointAddress, EndpointSetName, ServicePortPlan } from "@kpng/service-plan/service-plan.ts";
import type { ServiceTraffic } from "../traffic/service-traffic.ts";

/** An endpoint of a service port, to which connections refer. */
export interface BalancedEndpoint extends EndpointAddress {
  /** Time when the endpoint left the plan, in milliseconds; undefined while it is in the plan. */
  removedMs: number | undefined;
  /** Result of the last call of {@link BalancerSettings.isLoop}. */
  isLoop: boolean;
}

/** What a balancer is told about its service port. It keeps nothing of the plan. */
export interface BalancerSettings {
  readonly plan: Pick<ServicePortPlan, "sets" | "affinitySeconds">;
  /** Endpoints that get no new connections, but still answer existing flows. */
  readonly draining: readonly EndpointAddress[];
  /** Time for which connections to a removed endpoint go on, in milliseconds. */
  readonly drainMs: number;
  /** Returns whether connections to an endpoint would come back to this process. Called for each choice. */
  readonly isLoop: (endpoint: BalancedEndpoint) => boolean;
}

/**
 * Chooses endpoints for the new connections of one service port in one family. All frontends of the port share the
 * balancer, so round robin, open connections and affinity apply to the port as a whole. It exists as long as the port.
 */
export class Balancer {
  readonly traffic: ServiceTraffic;
  readonly #affinity: ClientAffinity;
  #affinitySeconds: number | undefined;
  #drainMs = 0;
  #isLoop: BalancerSettings["isLoop"] = () => false;
  /** All endpoints in the plan, and removed endpoints that may still have connections. */
  #known: readonly BalancedEndpoint[] = [];
  #sets: Readonly<Record<EndpointSetName, readonly BalancedEndpoint[]>> = { cluster: [], local: [] };
  #next = { cluster: 0, local: 0 };

  constructor(traffic: ServiceTraffic, settings: BalancerSettings, maxClients: number, nowMs: number) {
    this.traffic = traffic;
    this.#affinity = new ClientAffinity(maxClients);
    this.update(settings, nowMs);
  }

  /** Replaces settings and endpoints. Removed endpoints get no new connections from now on. O(endpoints). */
  update({ plan, draining, drainMs, isLoop }: BalancerSettings, nowMs: number): void {
    this.#affinitySeconds = plan.affinitySeconds;
    this.#drainMs = drainMs;
    this.#isLoop = isLoop;
    this.#replace(plan.sets, draining, nowMs);
    if (plan.affinitySeconds === undefined) this.#affinity.clear();
  }

  /** Removes all endpoints, because the service port no longer exists. */
  close(nowMs: number): void {
    this.#replace({ cluster: [], local: [] }, [], nowMs);
  }

  #replace({ cluster, local }: ServicePortPlan["sets"], draining: readonly EndpointAddress[], nowMs: number): void {
    const before = new Map(this.#known.map((endpoint) => [nameOf(endpoint), endpoint]));
    const known = new Map<string, BalancedEndpoint>();
    const toKnown = ({ address, port }: EndpointAddress): BalancedEndpoint => {
      const name = nameOf({ address, port });
      const endpoint = known.get(name) ?? before.get(name) ?? { address, port, removedMs: undefined, isLoop: false };
      endpoint.removedMs = undefined;
      known.set(name, endpoint);
      return endpoint;
    };
    this.#sets = { cluster: cluster.map(toKnown), local: local.map(toKnown) };
    for (const endpoint of draining) toKnown(endpoint);
    for (const [name, endpoint] of before) {
      if (known.has(name)) continue;
      endpoint.removedMs ??= nowMs;
      // Keep the endpoint while connections may refer to it, because it may return to the plan.
      if (nowMs - endpoint.removedMs < this.#drainMs) known.set(name, endpoint);
    }
    this.#known = [...known.values()];
  }

  /**
   * Returns the endpoint for a new connection; undefined if the set is empty or contains only endpoints that lead back
   * to this process. `tried` contains the endpoints that did not accept this connection; one of them is chosen again
   * only if there is no other endpoint.
   */
  choose(
    setName: EndpointSetName,
    client: string,
    nowMs: number,
    tried: readonly BalancedEndpoint[] = [],
  ): BalancedEndpoint | undefined {
    const set = this.#sets[setName];
    const affinitySeconds = this.#affinitySeconds;
    if (affinitySeconds === undefined) return this.#pick(set, setName, tried);
    const timeoutMs = affinitySeconds * 1_000;
    const remembered = tried.length === 0 ? this.#affinity.endpointOf(client, timeoutMs, nowMs) : undefined;
    const isUsable = remembered !== undefined && set.includes(remembered) && !this.#isLoop(remembered);
    const chosen = isUsable ? remembered : this.#pick(set, setName, tried);
    if (chosen === undefined) this.#affinity.forget(client);
    else this.#affinity.remember(client, chosen, timeoutMs, nowMs);
    return chosen;
  }

  has(setName: EndpointSetName): boolean {
    return this.#sets[setName].length > 0;
  }

  /** Forgets the endpoint of a client with affinity, because it does not answer. */
  forget(client: string): void {
    this.#affinity.forget(client);
  }

  #pick(
    set: readonly BalancedEndpoint[],
    setName: EndpointSetName,
    tried: readonly BalancedEndpoint[],
  ): BalancedEndpoint | undefined {
    if (set.length === 0) return undefined;
    const start = this.#next[setName] % set.length;
    let again: BalancedEndpoint | undefined;
    for (let step = 0; step < set.length; step++) {
      const endpoint = set[(start + step) % set.length];
      if (endpoint === undefined || this.#isLoop(endpoint)) continue;
      if (tried.includes(endpoint)) {
        again ??= endpoint;
        continue;
      }
      this.#next[setName] = start + step + 1;
      return endpoint;
    }
    this.#next[setName] = start + 1;
    return again;
  }
}

const nameOf = ({ address, port }: EndpointAddress): string => addressAndPort(address, port);

/**
 * Remembers which endpoint each client of a service port uses (session affinity ClientIP).
 *
 * *Bound:* `maxClients`; beyond it, the client whose last connection is the oldest is forgotten.
 */
class ClientAffinity {
  /** Clients in the order of last use, oldest first. */
  readonly #clients = new Map<string, { readonly endpoint: BalancedEndpoint; readonly usedMs: number }>();
  readonly #maxClients: number;

  constructor(maxClients: number) {
    this.#maxClients = maxClients;
  }

  /** Returns the endpoint of a client whose last connection is at most `timeoutMs` old. */
  endpointOf(client: string, timeoutMs: number, nowMs: number): BalancedEndpoint | undefined {
    const known = this.#clients.get(client);
    return known !== undefined && nowMs - known.usedMs <= timeoutMs ? known.endpoint : undefined;
  }

  remember(client: string, endpoint: BalancedEndpoint, timeoutMs: number, nowMs: number): void {
    this.#clients.delete(client);
    for (const [oldest, { usedMs }] of this.#clients) {
      if (nowMs - usedMs <= timeoutMs && this.#clients.size < this.#maxClients) break;
      this.#clients.delete(oldest);
    }
    this.#clients.set(client, { endpoint, usedMs: nowMs });
  }

  forget(client: string): void {
    this.#clients.delete(client);
  }

  clear(): void {
    this.#clients.clear();
  }
}
