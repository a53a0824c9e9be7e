import { isIn } from "@kpng/model/address.ts";
import { getOrMake } from "@kpng/model/collections.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { type ObjectKind, type ObjectMap, parseServer, type ServerId, serverOfReal } from "../render/kernel-objects.ts";

/** Identifies an object in the kernel. */
export type ObjectId = readonly [kind: ObjectKind, key: string];

interface Entry {
  value: string;
  /** Number of Services that need the object. */
  owners: number;
}

/**
 * The objects that all Services of one family need, and which of them may have changed since the last call of
 * {@link takeTouched}. Several Services may need the same object, e.g. the address of a load balancer. They always agree
 * on its value: addresses and the elements of ADDRESSES and HAIRPIN have no value, and every other object belongs to a
 * frontend or port of exactly one Service, because no two plans share a frontend.
 *
 * No I/O. *Cost:* a put takes time proportional to the number of objects of the Service.
 */
export class ServiceObjects {
  readonly #byOwner = new Map<ServiceKey, ObjectMap>();
  readonly #entries = new Map<ObjectKind, Map<string, Entry>>();
  #touched = new Map<ObjectKind, Set<string>>();

  /** Replaces the objects of a Service; undefined if it was deleted. */
  put(owner: ServiceKey, objects: ObjectMap | undefined): void {
    const before = this.#byOwner.get(owner);
    // Added before the old ones are released, so that an object that stays always has an owner.
    for (const [kind, key, value] of flat(objects)) {
      const ofKind = this.#ofKind(kind);
      const entry = ofKind.get(key);
      if (entry === undefined) ofKind.set(key, { value, owners: 1 });
      else {
        entry.value = value;
        entry.owners += 1;
      }
      this.touch(kind, key);
    }
    for (const [kind, key] of flat(before)) {
      const entry = this.#ofKind(kind).get(key);
      if (entry !== undefined && --entry.owners === 0) this.#ofKind(kind).delete(key);
      this.touch(kind, key);
    }
    if (objects === undefined) this.#byOwner.delete(owner);
    else this.#byOwner.set(owner, objects);
  }

  /** Marks an object for the next comparison. */
  touch(kind: ObjectKind, key: string): void {
    getOrMake(this.#touched, kind, () => new Set()).add(key);
  }

  /** Returns the objects that have been touched since the last call. */
  takeTouched(): readonly ObjectId[] {
    const touched = this.#touched;
    this.#touched = new Map();
    return [...touched].flatMap(([kind, keys]) => [...keys].map((key) => [kind, key] as const));
  }

  /** Returns the value of an object; undefined if no Service needs it. */
  valueOf(kind: ObjectKind, key: string): string | undefined {
    return this.#entries.get(kind)?.get(key)?.value;
  }

  /**
   * Returns the Services that need an object for which `isOf` returns true. *Cost:* O(objects), so it should be called
   * rarely.
   */
  ownersOf(isOf: (...id: ObjectId) => boolean): readonly ServiceKey[] {
    const owns = (objects: ObjectMap): boolean => flat(objects).some(([kind, key]) => isOf(kind, key));
    return [...this.#byOwner].flatMap(([owner, objects]) => (owns(objects) ? [owner] : []));
  }

  ofService(service: ServiceKey): ObjectMap {
    return this.#byOwner.get(service) ?? new Map();
  }

  *ofKind(kind: ObjectKind): Generator<readonly [key: string, value: string], void, void> {
    for (const [key, { value }] of this.#entries.get(kind) ?? []) yield [key, value];
  }

  #ofKind(kind: ObjectKind): Map<string, Entry> {
    return getOrMake(this.#entries, kind, () => new Map());
  }
}

function* flat(objects: ObjectMap | undefined): Generator<[ObjectKind, string, string], void, void> {
  for (const [kind, ofKind] of objects ?? []) for (const [key, value] of ofKind) yield [kind, key, value];
}

/**
 * Virtual servers of other programs that stay, although a Service has their address and port, because the address is in
 * `--ipvs-exclude-cidrs`. No I/O.
 */
export class ForeignServers {
  readonly #excludedCIDRs: readonly string[];
  readonly #servers = new Set<ServerId>();
  readonly #elements = new Set<string>();

  constructor(excludedCIDRs: readonly string[]) {
    this.#excludedCIDRs = excludedCIDRs;
  }

  /**
   * Notes a virtual server if its address is excluded. Returns whether it is. The caller has checked that the server is
   * not recorded as ours (`isRecorded`).
   */
  noteIfExcluded(server: ServerId): boolean {
    const parts = parseServer(server);
    if (parts?.kind !== "address" || !this.#excludedCIDRs.some((cidr) => isIn(parts.address, cidr))) return false;
    this.#servers.add(server);
    this.#elements.add(parts.element);
    return true;
  }

  /** True for a noted virtual server, its real servers, and the element that would record it as ours. */
  concerns(kind: ObjectKind, key: string): boolean {
    if (kind === "server") return this.#servers.has(key);
    if (kind === "real") return this.#servers.has(serverOfReal(key));
    return kind === "SERVERS" && this.#elements.has(key);
  }
}
