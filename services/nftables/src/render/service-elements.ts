import { numberBytes, readNumber } from "@kpng/model/byte-text.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type {
  AllowedSources,
  EndpointSetName,
  Frontend,
  NodePlan,
  Route,
  ServicePlan,
  ServicePortPlan,
} from "@kpng/service-plan/service-plan.ts";
import {
  addressBytes,
  type ElementBytes,
  type FrontendKind,
  packSet,
  portBytes,
  protocolBytes,
  type SharedSet,
  unpackSet,
} from "../layout/elements.ts";
import type { TableId } from "../netlink/transaction.ts";
import { ElementTable } from "./element-table.ts";
import { EndpointIds, EndpointSets, endpointBytes, type SlotMap, setIdBytes } from "./endpoint-sets.ts";
import { renderRangesChain, renderStickyChain, type ServiceChain, ServiceChains } from "./service-chains.ts";
import { stickyPickChain } from "./skeleton.ts";
import { renderWholeAddressEntry, renderWholeAddresses, type WholeAddressRules } from "./whole-addresses.ts";

/** The id of a port's endpoint set and the number of endpoints in it. */
interface NumberedSet {
  readonly id: number;
  readonly count: number;
}

interface ServiceElement {
  readonly set: SharedSet;
  readonly key: ElementBytes;
  readonly value: ElementBytes;
  /** Name of the Service port, shown by `nft list`. */
  readonly comment?: string | undefined;
}

/** Functions that return the ids of sets and names of chains to which elements refer. */
interface RenderedParts {
  /** Returns the id and size of an endpoint set of a port; called only for sets in {@link usedSets}. */
  readonly numbered: (port: ServicePortPlan, set: EndpointSetName) => NumberedSet;
  /** Returns the name of the chain that drops packets from all sources except these. */
  readonly rangesChain: (sources: AllowedSources) => string;
}

/** Returns the sets to which at least one route of a port leads. */
export function usedSets({ frontends }: ServicePortPlan): ReadonlySet<EndpointSetName> {
  const routes = frontends.flatMap((frontend) => Object.values(frontend.routes));
  return new Set(routes.flatMap((route) => (route.kind === "balance" ? [route.set] : [])));
}

/**
 * Renders the elements of one Service, except the slots with its endpoints, which `EndpointSets` manages. Rules that do
 * not depend on Services are in `skeleton.ts`. Pure; O(frontends).
 */
export function renderService(plan: ServicePlan, { numbered, rangesChain }: RenderedParts): readonly ServiceElement[] {
  return [
    ...plan.ports.flatMap((port) =>
      port.frontends.flatMap((frontend) => renderFrontend(port, frontend, (set) => numbered(port, set), rangesChain)),
    ),
    ...plan.hairpin.map((address): ServiceElement => {
      const bytes = addressBytes(address);
      return { set: "hairpin", key: bytes + bytes, value: "" };
    }),
  ];
}

function renderFrontend(
  port: ServicePortPlan,
  { kind, address, protocol, port: number, routes, sources }: Frontend,
  numbered: (set: EndpointSetName) => NumberedSet,
  rangesChain: (sources: AllowedSources) => string,
): readonly ServiceElement[] {
  const isNodePort = address === undefined;
  const key = (isNodePort ? "" : addressBytes(address)) + protocolBytes(protocol) + portBytes(number);
  const comment = port.name;
  const elements: ServiceElement[] = [];
  const add = (set: SharedSet, value: ElementBytes): void => void elements.push({ set, key, value, comment });
  const { inside, outside } = twoRoutes(routes);
  if (inside.route !== undefined) {
    const set = numbered(inside.route.set);
    add(isNodePort ? "nodeports" : "frontends", numberBytes(packSet({ ...set, kind: inside.kind })));
  }
  if (outside.kind === "balance" && inside.kind === "local") {
    const set = numbered(outside.set);
    const value = numberBytes(packSet({ ...set, kind: "plain" }));
    add(isNodePort ? "local_nodeports" : "local_frontends", value);
  }
  if (outside.kind === "refuse") add(isNodePort ? "refused_nodeports" : "refused", "");
  if (outside.kind === "drop") add(isNodePort ? "dropped_nodeports" : "dropped", "");
  // Also without an endpoint, as in kube-proxy's nftables mode.
  if (sources !== undefined) add("firewall", rangesChain(sources));
  if (kind === "clusterIP" && address !== undefined) {
    elements.push({ set: "cluster_ips", key: addressBytes(address), value: "" });
  }
  return elements;
}

type BalanceRoute = Extract<Route, { kind: "balance" }>;

/**
 * Converts the routes of a frontend to one of the two forms that the rules support: the same set for all senders, or a
 * different set for senders from outside. Pods and the node always have the same set, and if they have no endpoint,
 * nobody has one (`planService`).
 */
function twoRoutes({ pod, node, outside }: Frontend["routes"]): {
  readonly inside: { readonly route: BalanceRoute | undefined; readonly kind: FrontendKind };
  readonly outside: Route;
} {
  if (pod.kind !== "balance") return { inside: { route: undefined, kind: "plain" }, outside };
  const isOneSet = outside.kind === "balance" && outside.set === pod.set;
  if (!isOneSet) return { inside: { route: pod, kind: "local" }, outside };
  const isNodeMasqueraded = node.kind === "balance" && node.isMasqueraded;
  const kind = pod.isMasqueraded ? "masquerade" : isNodeMasqueraded ? "masqueradeUnlessPod" : "plain";
  return { inside: { route: pod, kind }, outside };
}

/** The elements, sets and chains that a Service has added, needed to remove them again. */
interface Contribution {
  readonly elements: readonly Pick<ServiceElement, "set" | "key" | "comment">[];
  readonly sets: ReadonlySet<string>;
  readonly chains: readonly string[];
  /** Endpoints that have ids, each with its set. */
  readonly stickyEndpoints: readonly (readonly [set: string, endpoint: ElementBytes])[];
}

interface OwnedElement {
  readonly set: SharedSet;
  readonly key: ElementBytes;
  /**
   * The Service or Service port that the element serves. *Shape:* `ns/web:http`, `ns/web:http TCP cluster` for an
   * endpoint, `ns/web` for the Service.
   */
  readonly owner: string;
}

const nothing: Contribution = { elements: [], sets: new Set(), chains: [], stickyEndpoints: [] };

/**
 * Turns Service plans into the elements and chains of one table, and remembers each Service's contribution so that it
 * can be replaced.
 *
 * A change to a Service touches only the elements of that Service. *Memory:* about 200 bytes for each endpoint.
 */
export class ServiceElements {
  readonly table = new ElementTable();
  readonly #chains: ServiceChains;
  readonly #family: TableId["family"];
  readonly #maxClients: number;
  readonly #podTraffic: NodePlan["podTraffic"];
  readonly #sets = new EndpointSets(this.table);
  readonly #ids = new EndpointIds(this.table);
  readonly #services = new Map<ServiceKey, Contribution>();
  /** Services with whole addresses. */
  readonly #whole = new Map<ServiceKey, WholeAddressRules>();
  /** Names of the chains that the Services in `#whole` share, and whether a change of `#whole` is still to be made. */
  #wholeEntry: readonly string[] = [];
  #isWholeEntryStale = false;

  /**
   * `maxClients` is the maximum number of clients remembered for one Service port with affinity. `podTraffic` is that of
   * the skeleton.
   */
  constructor(table: TableId, maxClients: number, podTraffic?: NodePlan["podTraffic"]) {
    this.#family = table.family;
    this.#maxClients = maxClients;
    this.#podTraffic = podTraffic;
    this.#chains = new ServiceChains(table);
  }

  get chains(): ServiceChains {
    // Rendered once after many puts, because it contains the addresses of all Services.
    if (this.#isWholeEntryStale) this.#updateWholeEntry();
    return this.#chains;
  }

  /** The Services that have elements. */
  get services(): Iterable<ServiceKey> {
    return this.#services.keys();
  }

  /** Yields the elements of a Service, including those for its endpoints. Services may share an element. */
  *ownedBy(service: ServiceKey): Generator<OwnedElement, void, void> {
    const { elements, sets, stickyEndpoints } = this.#services.get(service) ?? nothing;
    for (const { set, key, comment } of elements) yield { set, key, owner: comment ?? service };
    for (const owner of sets) for (const slot of this.#sets.slotsOf(owner)) yield { ...slot, owner };
    for (const [owner, endpoint] of stickyEndpoints) {
      const key = this.#ids.keyOf(owner, endpoint);
      if (key !== undefined) yield { set: "sticky_addresses", key, owner };
    }
  }

  /** Returns the chains that a Service needs. Services may share a chain. */
  chainsOf(service: ServiceKey): readonly ServiceChain[] {
    return (this.#services.get(service)?.chains ?? []).flatMap((name) => this.#chains.get(name) ?? []);
  }

  /** Replaces the contribution of a Service to the table, or removes it if `plan` is undefined. */
  put(key: ServiceKey, plan: ServicePlan | undefined): void {
    const before = this.#services.get(key) ?? nothing;
    // The new contribution is added before the old one is released, so that ids and chains in both are kept.
    const after = plan === undefined ? nothing : this.#add(plan, before);
    if (plan?.whole === undefined && this.#whole.delete(key)) this.#isWholeEntryStale = true;
    if (plan === undefined) this.#replace(before.elements, []);
    for (const [set, endpoint] of before.stickyEndpoints) this.#ids.release(set, endpoint);
    for (const name of before.chains) this.#chains.release(name);
    for (const name of before.sets) if (!after.sets.has(name)) this.#sets.delete(name);
    if (after.elements.length + after.chains.length === 0) this.#services.delete(key);
    else this.#services.set(key, after);
  }

  /**
   * Takes over the ids and slots that an earlier run has given to the sets of a Service, so that its elements need not
   * be written again. Must be called before the first {@link put} of the Service.
   *
   * `slotsOfSet` contains the slots in the kernel, in order and without gaps, keyed by set id. Adopted sets are removed
   * from it.
   */
  adopt(
    plan: ServicePlan,
    installed: (set: SharedSet, key: ElementBytes) => ElementBytes | undefined,
    slotsOfSet: Readonly<Record<SlotMap, Map<number, readonly ElementBytes[]>>>,
  ): void {
    // The elements are rendered with placeholder ids, 1 for "cluster" and 2 for "local": these show which of the sets a
    // frontend leads to, and the element in the kernel has the id of that set. Elements without an id get the value "".
    const placeholders: readonly EndpointSetName[] = ["cluster", "local"];
    for (const port of plan.ports) {
      if (usedSets(port).size === 0) continue;
      const map = slotMapOf(port);
      const elements = renderService(
        { ...plan, ports: [port], hairpin: [] },
        { numbered: (_port, set) => ({ id: placeholders.indexOf(set) + 1, count: 1 }), rangesChain: () => "" },
      );
      for (const { set, key, value } of elements) {
        const frontend = value === "" ? undefined : installed(set, key);
        const name = placeholders[value === "" ? -1 : idOf(value) - 1];
        if (frontend === undefined || name === undefined || this.#sets.has(setName(port, name))) continue;
        const slots = slotsOfSet[map].get(idOf(frontend));
        if (slots === undefined) continue;
        slotsOfSet[map].delete(idOf(frontend));
        this.#sets.adopt(setName(port, name), map, idOf(frontend), slots);
      }
    }
  }

  /**
   * Calls {@link EndpointSets.avoid}. Must be called after the last {@link adopt}, with the ids of all sets in the
   * kernel.
   */
  avoidIds(ids: ReadonlySet<number>): void {
    this.#sets.avoid(ids);
  }

  #add(plan: ServicePlan, before: Contribution): Contribution {
    const sets = new Map<string, NumberedSet>();
    const chains: string[] = [];
    const stickyEndpoints: (readonly [string, ElementBytes])[] = [];
    const extra: ServiceElement[] = [];
    const addChain = (chain: ReturnType<typeof renderRangesChain>): string => {
      this.#chains.add(chain);
      chains.push(chain.name);
      return chain.name;
    };
    const numbered = (port: ServicePortPlan, set: EndpointSetName): NumberedSet => {
      const name = setName(port, set);
      const known = sets.get(name);
      if (known !== undefined) return known;
      const endpoints = port.sets[set].map(endpointBytes);
      const { affinitySeconds } = port;
      if (affinitySeconds === undefined) {
        const plain = this.#sets.put(name, "slots", endpoints);
        sets.set(name, plain);
        return plain;
      }
      const ids = endpoints.map((endpoint) => {
        stickyEndpoints.push([name, endpoint]);
        return this.#ids.add(name, endpoint);
      });
      const { id, count } = this.#sets.put(name, "sticky_slots", ids);
      const chain = renderStickyChain(this.#family, port, set, id, affinitySeconds, this.#maxClients);
      const at = { key: setIdBytes(id), comment: port.name };
      extra.push({ ...at, set: "sticky_sets", value: addChain(chain) });
      extra.push({ ...at, set: "sticky_counts", value: stickyPickChain(count) });
      const sticky = { id, count: 0 };
      sets.set(name, sticky);
      return sticky;
    };
    const rangesChain = (sources: AllowedSources): string => addChain(renderRangesChain(this.#family, sources));
    if (plan.whole !== undefined) {
      const node = { family: this.#family, podTraffic: this.#podTraffic };
      const rules = renderWholeAddresses(node, plan.whole, this.#maxClients, rangesChain);
      this.#whole.set(plan.key, rules);
      this.#isWholeEntryStale = true;
      for (const chain of rules.chains) addChain(chain);
    }
    const rendered = [...renderService(plan, { numbered, rangesChain }), ...extra];
    // All ports share the element of the cluster IP, which the Service must claim only once.
    const elements = [...new Map(rendered.map((element) => [`${element.set} ${element.key}`, element])).values()];
    this.#replace(before.elements, elements);
    return {
      elements: elements.map(({ set, key, comment }) => ({ set, key, comment })),
      sets: new Set(sets.keys()),
      chains,
      stickyEndpoints,
    };
  }

  /** Adds the new chains before the old ones are released, so that those with the same names stay. */
  #updateWholeEntry(): void {
    this.#isWholeEntryStale = false;
    const chains = renderWholeAddressEntry(this.#family, this.#whole.values());
    for (const chain of chains) this.#chains.add(chain);
    for (const name of this.#wholeEntry) this.#chains.release(name);
    this.#wholeEntry = chains.map(({ name }) => name);
  }

  #replace(before: Contribution["elements"], after: readonly ServiceElement[]): void {
    // An element that stays is not released in between; otherwise another Service's claim on it would be lost.
    const staying = new Set(after.map(({ set, key }) => `${set} ${key}`));
    const had = new Set(before.map(({ set, key }) => `${set} ${key}`));
    for (const { set, key } of before) if (!staying.has(`${set} ${key}`)) this.table.delete(set, key);
    for (const { set, key, value, comment } of after) {
      if (had.has(`${set} ${key}`)) this.table.put(set, key, value, comment);
      else this.table.claim(set, key, value, comment);
    }
  }
}

/** Returns the nftables map for the slots of a port. */
function slotMapOf({ affinitySeconds }: ServicePortPlan): SlotMap {
  return affinitySeconds === undefined ? "slots" : "sticky_slots";
}

/** Returns the name of an endpoint set in `EndpointSets`; the kernel knows only its id. */
function setName({ name, protocol }: ServicePortPlan, set: EndpointSetName): string {
  return `${name} ${protocol} ${set}`;
}

function idOf(value: ElementBytes): number {
  return unpackSet(readNumber(value)).id;
}
