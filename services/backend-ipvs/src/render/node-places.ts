import type { ServiceKey } from "@kpng/model/service.ts";
import { type Clash, type FrontendId, frontendId } from "@kpng/service-plan/frontend-claims.ts";
import type { Frontend, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { portElement } from "./kernel-objects.ts";

interface ServicePlaces {
  /** Frontends with addresses of the node. *Shape of a key:* `192.0.2.1,tcp:30080`. */
  readonly taken: ReadonlyMap<string, TakenPlace>;
  /** Node ports, and whether any sender gets an endpoint there. *Shape of a key:* `TCP 30080`. */
  readonly nodePorts: ReadonlyMap<string, boolean>;
}

interface TakenPlace {
  /** *Shape:* `TCP 30080`. */
  readonly port: string;
  readonly frontend: FrontendId;
}

const noPlaces: ServicePlaces = { taken: new Map(), nodePorts: new Map() };

/**
 * The places (address, protocol and port) of the node at which a Service answers with an external IP or load-balancer
 * IP. A node port with the same number does not answer there, as in kube-proxy, whose rules for node ports come last.
 *
 * The kit's `FrontendClaims` does not know the addresses of node ports: with rules, their order decides, but a virtual
 * server mixes the endpoints of both.
 *
 * *Bound:* the node ports, and the frontends at addresses of the node.
 */
export class NodePlaces {
  readonly #addresses: ReadonlySet<string>;
  readonly #byService = new Map<ServiceKey, ServicePlaces>();
  readonly #taken = new Map<string, ServiceKey>();
  readonly #nodePorts = new Map<string, ServiceKey>();

  /** `addresses` are those that serve node ports. */
  constructor(addresses: readonly string[]) {
    this.#addresses = new Set(addresses);
  }

  /** True if node ports do not answer at the place. *Shape of `element`:* `192.0.2.1,tcp:30080`. */
  isTaken(element: string): boolean {
    return this.#taken.has(element);
  }

  /**
   * Node ports with endpoints that do not answer at a place, because another Service does. O(frontends at addresses of
   * the node).
   */
  get clashes(): readonly Clash[] {
    return [...this.#taken].flatMap(([element, served]) => {
      const { port = "", frontend = "" } = this.#byService.get(served)?.taken.get(element) ?? {};
      const shadowed = this.#nodePorts.get(port);
      if (shadowed === undefined || shadowed === served) return [];
      return this.#byService.get(shadowed)?.nodePorts.get(port) === true ? [{ frontend, served, shadowed }] : [];
    });
  }

  /** Replaces the places of a Service. Returns the Services whose node ports gain or lose a place by that. */
  put(key: ServiceKey, plan: ServicePlan | undefined): readonly ServiceKey[] {
    const before = this.#byService.get(key) ?? noPlaces;
    const after = this.#placesOf(plan);
    // Services that exchange a frontend may be put in any order.
    for (const element of before.taken.keys()) if (this.#taken.get(element) === key) this.#taken.delete(element);
    for (const port of before.nodePorts.keys()) if (this.#nodePorts.get(port) === key) this.#nodePorts.delete(port);
    for (const element of after.taken.keys()) this.#taken.set(element, key);
    for (const port of after.nodePorts.keys()) this.#nodePorts.set(port, key);
    if (after.taken.size + after.nodePorts.size === 0) this.#byService.delete(key);
    else this.#byService.set(key, after);
    return [...new Map([...before.taken, ...after.taken])].flatMap(([element, { port }]) => {
      const other = this.#nodePorts.get(port);
      const isChanged = before.taken.has(element) !== after.taken.has(element);
      return isChanged && other !== undefined ? [other] : [];
    });
  }

  #placesOf(plan: ServicePlan | undefined): ServicePlaces {
    const taken = new Map<string, TakenPlace>();
    const nodePorts = new Map<string, boolean>();
    for (const frontend of plan?.ports.flatMap(({ frontends }) => frontends) ?? []) {
      const { address, protocol, port } = frontend;
      const id = `${protocol} ${port}`;
      if (address === undefined) nodePorts.set(id, hasEndpoints(frontend));
      else if (this.#addresses.has(address))
        taken.set(portElement(address, protocol, port), { port: id, frontend: frontendId(frontend) });
    }
    return { taken, nodePorts };
  }
}

/** True if any sender gets an endpoint at the frontend. */
function hasEndpoints({ routes: { pod, node, outside } }: Frontend): boolean {
  return [pod, node, outside].some(({ kind }) => kind === "balance");
}
