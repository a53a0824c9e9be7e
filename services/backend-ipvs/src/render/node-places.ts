import type { ServiceKey } from "@kpng/model/service.ts";
import type { ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { portElement } from "./kernel-objects.ts";

interface ServicePlaces {
  /**
   * Frontends at addresses of the node, each with its protocol and port. *Shape:* `192.0.2.1,tcp:30080` → `TCP 30080`.
   */
  readonly taken: ReadonlyMap<string, string>;
  /** Node ports. *Shape:* `TCP 30080`. */
  readonly nodePorts: ReadonlySet<string>;
}

const noPlaces: ServicePlaces = { taken: new Map(), nodePorts: new Set() };

/**
 * The places (address, protocol and port) on the node at which a Service has an external IP or load-balancer IP. A node
 * port with the same number does not answer there. kube-proxy behaves in the same way, because its rules for node ports
 * come last.
 *
 * The kit's `FrontendClaims` does not cover this, because it does not know the addresses of node ports. In rule-based
 * backends the order of rules decides, but a virtual server would mix the endpoints of both frontends.
 *
 * *Bound:* the number of node ports and of frontends at addresses of the node.
 */
export class NodePlaces {
  readonly #addresses: ReadonlySet<string>;
  readonly #byService = new Map<ServiceKey, ServicePlaces>();
  readonly #taken = new Map<string, ServiceKey>();
  readonly #nodePorts = new Map<string, ServiceKey>();

  /** `addresses` contains the addresses that serve node ports. */
  constructor(addresses: readonly string[]) {
    this.#addresses = new Set(addresses);
  }

  /** True if node ports do not answer at the place. *Shape of `element`:* `192.0.2.1,tcp:30080`. */
  isTaken(element: string): boolean {
    return this.#taken.has(element);
  }

  /** Replaces the places of a Service. Returns the Services whose node ports thereby gain or lose a place. */
  put(key: ServiceKey, plan: ServicePlan | undefined): readonly ServiceKey[] {
    const before = this.#byService.get(key) ?? noPlaces;
    const after = this.#placesOf(plan);
    // Services that exchange a frontend may be put in any order, so delete a place only if it still belongs to this
    // Service.
    for (const element of before.taken.keys()) if (this.#taken.get(element) === key) this.#taken.delete(element);
    for (const port of before.nodePorts) if (this.#nodePorts.get(port) === key) this.#nodePorts.delete(port);
    for (const element of after.taken.keys()) this.#taken.set(element, key);
    for (const port of after.nodePorts) this.#nodePorts.set(port, key);
    if (after.taken.size + after.nodePorts.size === 0) this.#byService.delete(key);
    else this.#byService.set(key, after);
    return [...before.taken, ...after.taken].flatMap(([element, port]) => {
      const other = this.#nodePorts.get(port);
      return before.taken.has(element) !== after.taken.has(element) && other !== undefined ? [other] : [];
    });
  }

  #placesOf(plan: ServicePlan | undefined): ServicePlaces {
    const taken = new Map<string, string>();
    const nodePorts = new Set<string>();
    for (const { address, protocol, port } of plan?.ports.flatMap(({ frontends }) => frontends) ?? []) {
      const id = `${protocol} ${port}`;
      if (address === undefined) nodePorts.add(id);
      else if (this.#addresses.has(address)) taken.set(portElement(address, protocol, port), id);
    }
    return { taken, nodePorts };
  }
}
