import { createHash } from "node:crypto";
import { type ElementBytes, numberBytes } from "../layout/element-keys.ts";
import { firstEndpointId } from "../layout/packed-set.ts";
import type { ElementTable } from "./element-table.ts";

interface HeldId {
  readonly id: number;
  /** Number of calls of `add` without a `release`. It is 2 while a Service is replaced. */
  owners: number;
}

/**
 * Ids of the endpoints of sets with client affinity. The kernel remembers the id of the endpoint that each client got.
 * `ServiceElements` asks for the id of each endpoint of such a Service.
 *
 * Separate from `EndpointSets`, whose slot numbers change when endpoints go: a client must keep its endpoint then.
 *
 * An id is derived from the set and the endpoint, so a restart gives the same ids and clients stay with their
 * endpoints. If the ids of two endpoints agree in all 31 bits, the later one gets the next free id.
 */
export class EndpointIds {
  readonly #table: ElementTable;
  readonly #held = new Map<string, HeldId>();
  readonly #taken = new Set<number>();

  constructor(table: ElementTable) {
    this.#table = table;
  }

  /** Returns the id of an endpoint of a set, as the bytes of an element. Each call needs a {@link release}. */
  add(set: string, endpoint: ElementBytes): ElementBytes {
    const name = `${set} ${endpoint}`;
    const held = this.#held.get(name) ?? { id: this.#newId(name), owners: 0 };
    this.#held.set(name, held);
    held.owners += 1;
    const bytes = numberBytes(held.id);
    this.#table.put("sticky_endpoints", bytes, endpoint);
    return bytes;
  }

  /** Returns the id of an endpoint of a set, as {@link add} did; undefined if it has none. */
  get(set: string, endpoint: ElementBytes): ElementBytes | undefined {
    const held = this.#held.get(`${set} ${endpoint}`);
    return held === undefined ? undefined : numberBytes(held.id);
  }

  release(set: string, endpoint: ElementBytes): void {
    const name = `${set} ${endpoint}`;
    const held = this.#held.get(name);
    if (held === undefined) return;
    held.owners -= 1;
    if (held.owners > 0) return;
    this.#held.delete(name);
    this.#taken.delete(held.id);
    this.#table.delete("sticky_endpoints", numberBytes(held.id));
  }

  #newId(name: string): number {
    const digest = createHash("sha256").update(name, "latin1").digest().readUInt32BE(0);
    let id = firstEndpointId + (digest % firstEndpointId);
    while (this.#taken.has(id)) id = firstEndpointId + ((id + 1) % firstEndpointId);
    this.#taken.add(id);
    return id;
  }
}
