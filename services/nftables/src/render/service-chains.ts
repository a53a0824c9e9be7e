import { createHash } from "node:crypto";
import type { Family } from "@kpng/model/address.ts";
import type { AllowedSources, EndpointSetName, ServicePortPlan } from "@kpng/service-plan/service-plan.ts";
import { firstEndpointId, packSet, sharedSets } from "../layout/elements.ts";
import type { TableId } from "../netlink/transaction.ts";
import { type Chain, ipOf, lines, renderChains } from "./skeleton.ts";

/**
 * A chain that some Services need. Chains with equal names have equal rules, unless they belong to different versions of
 * the same Service.
 */
export interface ServiceChain extends Chain {
  /** Sets and maps that only this chain uses. Default: none. */
  readonly sets?: readonly DeclaredSet[] | undefined;
}

interface DeclaredSet {
  readonly kind: "set" | "map";
  readonly name: string;
  /** As nft declares it. *Shape:* `typeof ip saddr; flags interval;`. */
  readonly type: string;
  /** All its elements in nft's syntax; undefined if packets change them. */
  readonly elements?: readonly string[] | undefined;
}

/** Pattern of the names of chains that drop packets by their source; their sets have the same names. */
export const rangesPattern = /^ranges_[0-9a-f]{16}$/;

/**
 * Renders the chain that sends a client to the same endpoint each time.
 *
 * A client gets its remembered endpoint again if this endpoint still has an id in `sticky_addresses`. An endpoint that
 * is removed loses its id in the same transaction, so no new connection goes there. All other clients get a random
 * endpoint, which is remembered. If the map of clients is full, `update` fails and evaluation of its rule ends; the
 * connection then goes to a random endpoint that is not remembered. The sets for policy Cluster and policy Local have
 * separate maps, because a client's endpoint in one set may be missing from the other. If the map of an earlier run has
 * another size, the kernel accepts the declaration, and may keep that size.
 */
export function renderStickyChain(
  family: Family,
  port: ServicePortPlan,
  set: EndpointSetName,
  id: number,
  affinitySeconds: number,
  maxClients: number,
): ServiceChain {
  const ip = ipOf(family);
  const hash = setHash(port, set);
  const clients = clientMap(family, hash, affinitySeconds, maxClients);
  const setId = `meta priority set ${packSet({ kind: "plain", id, count: 0 })}`;
  const goThere = `meta l4proto { tcp, udp, sctp } dnat ${ip} addr . port to meta priority . meta priority map @sticky_addresses`;
  return {
    name: `sticky_${hash}`,
    sets: [clients.set],
    rules: [
      // Removes the kind of the frontend, with which the value could equal an endpoint id of another Service.
      setId,
      clients.recall,
      `meta priority >= ${firstEndpointId} ${goThere}`,
      setId,
      "meta priority vmap @sticky_counts",
      // Repeated in case the lookup found nothing, as in the skeleton. If the first lookup succeeded, the second one
      // finds nothing, because an endpoint's id is not a key of the map.
      "meta priority vmap @sticky_counts",
      // Only an endpoint id may be remembered.
      `meta priority < ${firstEndpointId} return`,
      ...clients.remember(goThere),
    ],
  };
}

/**
 * Renders the chain that drops packets from all sources except the allowed ones. Frontends with the same allowed
 * sources share a chain.
 */
export function renderRangesChain(family: Family, { ranges, ownAddresses }: AllowedSources): ServiceChain {
  const ip = ipOf(family);
  const elements = [...new Set([...ranges, ...ownAddresses])].sort();
  const name = `ranges_${hash(elements.join(" "))}`;
  const type = `typeof ${ip} saddr; flags interval; auto-merge;`;
  return {
    name,
    sets: [{ kind: "set", name, type, elements }],
    rules: [`${ip} saddr != @${name} drop`],
  };
}

/**
 * Returns the map of the clients of a Service port or whole address with affinity, and the rules for it. It holds the id
 * of each client's endpoint, which rules have in `meta priority`. `hash` identifies the owner.
 */
export function clientMap(family: Family, hash: string, affinitySeconds: number, maxClients: number) {
  const source = `${ipOf(family)} saddr`;
  const name = `clients_${hash}`;
  const element = `${source} timeout ${affinitySeconds}s : meta priority`;
  const type = `typeof ${source} : meta priority; flags dynamic,timeout; size ${maxClients};`;
  return {
    set: { kind: "map", name, type } as const,
    /** Loads the client's endpoint and renews its timeout; has no effect for an unknown client. */
    recall: `meta priority set ${source} map @${name} update @${name} { ${element} }`,
    /** Returns rules that remember the endpoint, and then do as `goThere` says. */
    remember: (goThere: string): readonly string[] => [
      // The element is deleted first because `update` only renews the timeout of an existing element and keeps its old
      // value.
      `delete @${name} { ${source} : meta priority }`,
      `update @${name} { ${element} } ${goThere}`,
      // Reached if the map is full.
      goThere,
    ],
  };
}

function setHash({ name, protocol }: ServicePortPlan, set: EndpointSetName): string {
  return hash(`${name} ${protocol} ${set}`);
}

/**
 * Returns 16 hexadecimal digits. The probability that any two of 100 000 names have the same hash is about 1 in 4
 * billion.
 */
export function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 16);
}

interface OwnedChain {
  chain: ServiceChain;
  /** Number of `add` calls not yet matched by a `release`. */
  owners: number;
}

/**
 * The chains that individual Services need for client affinity and source ranges, and which of these chains are
 * installed.
 */
export class ServiceChains {
  readonly #table: TableId;
  readonly #desired = new Map<string, OwnedChain>();
  /** The chains as they were last installed, keyed by name. */
  readonly #installed = new Map<string, ServiceChain>();
  readonly #changed = new Set<string>();

  constructor(table: TableId) {
    this.#table = table;
  }

  get(name: string): ServiceChain | undefined {
    return this.#desired.get(name)?.chain;
  }

  /** Yields the desired chains, whether or not they are installed. */
  *desired(): Generator<ServiceChain, void, void> {
    for (const { chain } of this.#desired.values()) yield chain;
  }

  add(chain: ServiceChain): void {
    const owned = this.#desired.get(chain.name);
    if (owned === undefined) this.#desired.set(chain.name, { chain, owners: 1 });
    else {
      owned.chain = chain;
      owned.owners += 1;
    }
    this.#changed.add(chain.name);
  }

  release(name: string): void {
    const owned = this.#desired.get(name);
    if (owned === undefined) return;
    owned.owners -= 1;
    if (owned.owners === 0) this.#desired.delete(name);
    this.#changed.add(name);
  }

  /** Returns the commands that must be applied before elements lead to the chains; "" for none. */
  additions(): string {
    return this.#add((chain) => chain.hook === undefined);
  }

  /** Returns the commands for base chains, which come after all chains to which they may lead; "" for none. */
  hooks(): string {
    return this.#add((chain) => chain.hook !== undefined);
  }

  /** Chains that the next commit writes: new ones, and those with other rules. */
  get written(): readonly ServiceChain[] {
    return [...this.#changed].flatMap((name) => {
      const chain = this.#desired.get(name)?.chain;
      return chain === undefined || textOf(chain) === textOf(this.#installed.get(name)) ? [] : [chain];
    });
  }

  #add(isIncluded: (chain: ServiceChain) => boolean): string {
    const chains = this.written.filter(isIncluded);
    const { family, name } = this.#table;
    const sets = chains.flatMap(({ sets = [] }) => sets.flatMap((set) => addSet(`${ipOf(family)} ${name}`, set)));
    return lines([...sets, ...renderChains(ipOf(family), name, chains)]);
  }

  /** Installed chains that no Service needs any more; the next commit removes them. */
  get removed(): readonly ServiceChain[] {
    return [...this.#changed].flatMap((name) => (this.#desired.has(name) ? [] : (this.#installed.get(name) ?? [])));
  }

  /** Returns the commands that may be applied as soon as no element leads to an undesired chain; "" for none. */
  removals(): string {
    const changed = [...this.#changed];
    const staying = namesOf(changed.flatMap((name) => this.get(name)?.sets ?? []));
    const before = changed.flatMap((name) => this.#installed.get(name)?.sets ?? []);
    return this.#remove(
      this.removed.map(({ name }) => name),
      before.filter(({ name }) => !staying.has(name)),
    );
  }

  /**
   * Returns the commands that remove all given chains and sets that no Service needs. They may come from an earlier
   * run, or from another program that has added them to our table; rules in such a foreign chain may lead to our chains
   * and prevent their deletion. `fixed` contains the names of chains that always stay; shared sets always stay, too.
   */
  removalsOf(
    chains: readonly string[],
    sets: readonly { readonly kind: string; readonly name: string }[],
    fixed: ReadonlySet<string>,
  ): string {
    const stayingSets = namesOf([...this.desired()].flatMap(({ sets = [] }) => sets)).union(new Set(sharedSets));
    return this.#remove(
      chains.filter((name) => !this.#desired.has(name) && !fixed.has(name)),
      sets.filter(({ name }) => !stayingSets.has(name)),
    );
  }

  /** Declares that additions and removals have been applied. */
  committed(): void {
    for (const name of this.#changed) {
      const chain = this.#desired.get(name)?.chain;
      if (chain === undefined) this.#installed.delete(name);
      else this.#installed.set(name, chain);
    }
    this.#changed.clear();
  }

  #remove(chains: readonly string[], sets: readonly { readonly kind: string; readonly name: string }[]): string {
    const at = `${ipOf(this.#table.family)} ${this.#table.name}`;
    return lines([
      ...chains.map((name) => `flush chain ${at} ${name}`),
      // Sets are deleted before chains, because elements of a foreign map may lead to a chain.
      ...sets.map(({ kind, name }) => `delete ${kind} ${at} ${name}`),
      ...chains.map((name) => `delete chain ${at} ${name}`),
    ]);
  }
}

/** Returns the commands that add a set, or restore its contents if it exists. */
function addSet(at: string, { kind, name, type, elements }: DeclaredSet): readonly string[] {
  const add = `add ${kind} ${at} ${name} { ${type} }`;
  if (elements === undefined) return [add];
  return [add, `flush set ${at} ${name}`, `add element ${at} ${name} { ${elements.join(", ")} }`];
}

function textOf(chain: ServiceChain | undefined): string | undefined {
  return chain && JSON.stringify([chain.hook, chain.sets, chain.rules]);
}

function namesOf(sets: readonly DeclaredSet[]): ReadonlySet<string> {
  return new Set(sets.map(({ name }) => name));
}
