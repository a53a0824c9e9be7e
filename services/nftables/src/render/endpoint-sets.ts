import { createHash } from "node:crypto";
import { numberBytes } from "@kpng/model/byte-text.ts";
import type { EndpointAddress } from "@kpng/service-plan/service-plan.ts";
import {
  addressBytes,
  type ElementBytes,
  firstEndpointId,
  maxEndpoints,
  maxSetId,
  portBytes,
} from "../layout/elements.ts";
import type { ElementTable } from "./element-table.ts";

/** Factor of the id in a packed set, whose lowest bits contain the number of endpoints; see `packSet`. */
const idFactor = maxEndpoints + 1;

/**
 * The nftables map that contains the slots of a set. "sticky_slots" is used for sets with client affinity; its values
 * are endpoint ids.
 */
export type SlotMap = "slots" | "sticky_slots";

/** One endpoint set: the endpoints among which connections to some frontends of a Service port are balanced. */
interface EndpointSet {
  readonly id: number;
  readonly map: SlotMap;
  /** The value of each slot's element, without gaps. */
  readonly slots: ElementBytes[];
}

/**
 * Numbers the endpoint sets of a table and keeps the endpoints of each in slots 0 to count − 1, so that a rule can
 * choose an endpoint by a random number.
 *
 * An endpoint keeps its slot as long as possible, so adding or removing an endpoint changes one or two elements. A
 * released id is reused only after all others, so a packet that is being processed cannot reach another Service's
 * endpoints.
 */
export class EndpointSets {
  readonly #table: ElementTable;
  readonly #sets = new Map<string, EndpointSet>();
  /** Ids to reuse, in this order, as soon as every id has been used; each at most once. */
  #freeIds: number[] = [];
  #lastId = 0;

  constructor(table: ElementTable) {
    this.#table = table;
  }

  /**
   * Sets the endpoints of the set `name`. Returns its id and the number of endpoints that get connections, at most
   * {@link maxEndpoints}. `endpoints` contains slot values; there must be at least one, and all must be different.
   *
   * Errors: RangeError if all ids are in use.
   */
  put(name: string, map: SlotMap, endpoints: readonly ElementBytes[]): { readonly id: number; readonly count: number } {
    const known = this.#sets.get(name);
    // The port gained or lost affinity.
    if (known !== undefined && known.map !== map) this.delete(name);
    const set = this.#sets.get(name) ?? { id: this.#nextId(), map, slots: [] };
    this.#sets.set(name, set);
    const desired = new Set(endpoints.slice(0, maxEndpoints));
    const { slots } = set;
    const present = new Set(slots);
    const added = [...desired].filter((endpoint) => !present.has(endpoint));
    for (let at = slots.length - 1; at >= 0; at--) {
      if (desired.has(slots[at] ?? "")) continue;
      const newcomer = added.pop();
      if (newcomer !== undefined) this.#setSlot(set, at, newcomer);
      else {
        // The last endpoint moves into the empty slot. All slots after the empty one already have desired endpoints.
        const last = slots.at(-1) ?? "";
        this.#truncate(set);
        if (at < slots.length) this.#setSlot(set, at, last);
      }
    }
    for (const endpoint of added) this.#setSlot(set, slots.length, endpoint);
    return { id: set.id, count: slots.length };
  }

  delete(name: string): void {
    const set = this.#sets.get(name);
    if (set === undefined) return;
    while (set.slots.length > 0) this.#truncate(set);
    this.#sets.delete(name);
    this.#freeIds.push(set.id);
  }

  /** Returns the map and the key of each slot of a set. */
  slotsOf(name: string): readonly { readonly set: SlotMap; readonly key: ElementBytes }[] {
    const set = this.#sets.get(name);
    return set === undefined ? [] : set.slots.map((_, at) => ({ set: set.map, key: slotKey(set.id, at) }));
  }

  has(name: string): boolean {
    return this.#sets.has(name);
  }

  /** Takes over a set from an earlier run, with the endpoints that it has in the kernel. */
  adopt(name: string, map: SlotMap, id: number, slots: readonly ElementBytes[]): void {
    const set: EndpointSet = { id, map, slots: [] };
    this.#sets.set(name, set);
    this.#lastId = Math.max(this.#lastId, id);
    for (const [at, endpoint] of slots.entries()) this.#setSlot(set, at, endpoint);
  }

  /**
   * Makes new sets avoid the ids from an earlier run as long as there are others, because frontends in the kernel may
   * lead to these ids until the last part of a divided transaction. Must be called after the last {@link adopt}.
   */
  avoid(ids: ReadonlySet<number>): void {
    for (const id of ids) this.#lastId = Math.max(this.#lastId, id);
    if (this.#lastId < maxSetId) return;
    const unused = this.#unusedIds();
    this.#freeIds = [...unused.filter((id) => !ids.has(id)), ...unused.filter((id) => ids.has(id))];
  }

  #setSlot({ id, map, slots }: EndpointSet, at: number, endpoint: ElementBytes): void {
    slots[at] = endpoint;
    this.#table.put(map, slotKey(id, at), endpoint);
  }

  #truncate({ id, map, slots }: EndpointSet): void {
    slots.pop();
    this.#table.delete(map, slotKey(id, slots.length));
  }

  #unusedIds(): number[] {
    const used = new Set([...this.#sets.values()].map(({ id }) => id));
    return Array.from({ length: maxSetId }, (_, index) => index + 1).filter((id) => !used.has(id));
  }

  /**
   * Returns an id that no set has: one that has never been used as long as there are any, then each unused id in turn.
   */
  #nextId(): number {
    if (this.#lastId < maxSetId) {
      this.#lastId += 1;
      return this.#lastId;
    }
    if (this.#freeIds.length === 0) this.#freeIds = this.#unusedIds();
    const id = this.#freeIds.shift();
    if (id === undefined) throw new RangeError(`all ${maxSetId} ids of endpoint sets are in use`);
    return id;
  }
}

/** The value of a slot's element. */
export function endpointBytes({ address, port }: EndpointAddress): ElementBytes {
  return addressBytes(address) + portBytes(port);
}

function slotKey(id: number, slot: number): ElementBytes {
  return setIdBytes(id) + numberBytes(slot);
}

/** The id of a set as the key of an element: the packed value without kind and count. */
export function setIdBytes(id: number): ElementBytes {
  return numberBytes(id * idFactor);
}

/** The key in `sticky_addresses` of an endpoint's id: the id twice (see the declaration of the map). */
export function stickyKey(id: ElementBytes): ElementBytes {
  return id + id;
}

interface OwnedId {
  readonly id: number;
  /** Number of calls to `add` not yet matched by a `release`. It is 2 while a Service is being replaced. */
  owners: number;
}

/**
 * Ids of endpoints in sets with client affinity. For each client, the kernel remembers the id of its endpoint.
 *
 * The slot numbers of `EndpointSets` cannot be used instead: they change when endpoints are removed, but a client must
 * keep its endpoint.
 *
 * An id is derived from the set and the endpoint, so the ids are the same after a restart and clients keep their
 * endpoints. If the ids of two endpoints would be equal in all 31 bits, the later endpoint gets the next free id.
 */
export class EndpointIds {
  readonly #table: ElementTable;
  readonly #ids = new Map<string, OwnedId>();
  readonly #taken = new Set<number>();

  constructor(table: ElementTable) {
    this.#table = table;
  }

  /**
   * Returns the id of an endpoint of a set, encoded as element bytes. Each call must be matched by a {@link release}.
   */
  add(set: string, endpoint: ElementBytes): ElementBytes {
    const name = `${set} ${endpoint}`;
    const owned = this.#ids.get(name) ?? { id: this.#newId(name), owners: 0 };
    this.#ids.set(name, owned);
    owned.owners += 1;
    const bytes = numberBytes(owned.id);
    this.#table.put("sticky_addresses", stickyKey(bytes), endpoint);
    return bytes;
  }

  /** Returns the key in `sticky_addresses` of an endpoint of a set; undefined if it has none. */
  keyOf(set: string, endpoint: ElementBytes): ElementBytes | undefined {
    const owned = this.#ids.get(`${set} ${endpoint}`);
    return owned === undefined ? undefined : stickyKey(numberBytes(owned.id));
  }

  release(set: string, endpoint: ElementBytes): void {
    const name = `${set} ${endpoint}`;
    const owned = this.#ids.get(name);
    if (owned === undefined) return;
    owned.owners -= 1;
    if (owned.owners > 0) return;
    this.#ids.delete(name);
    this.#taken.delete(owned.id);
    this.#table.delete("sticky_addresses", stickyKey(numberBytes(owned.id)));
  }

  #newId(name: string): number {
    const digest = createHash("sha256").update(name, "latin1").digest().readUInt32BE(0);
    let id = firstEndpointId + (digest % firstEndpointId);
    while (this.#taken.has(id)) id = firstEndpointId + ((id + 1) % firstEndpointId);
    this.#taken.add(id);
    return id;
  }
}
