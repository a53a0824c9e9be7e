import { hash } from "node:crypto";
import type { Family } from "@kpng/model/address.ts";
import type { Protocol, ServiceKey } from "@kpng/model/service.ts";

// A mark consists of the instance's range (bits 24 to 31), three flags, and the id of a Service port (bits 0 to 20).
// IPVS compares all 32 bits; other programs' bits are safe, because only packets without any mark get one, and lose it
// after IPVS (`renderFrame`). A mark from an earlier run must show its protocol, because UDP endpoints do not drain
// (`isDrainable`).
const masqueradeFlag = 0x0080_0000;
const familyFlag = 0x0040_0000;
const udpFlag = 0x0020_0000;
const maxIds = 0x0020_0000;

/**
 * The range of firewall marks of one instance: bits 24 to 31. *Shape:* `0x6b` for the default instance, one of `0x70`
 * to `0x7f` with a proxy name. It is below 0x80, because marks would otherwise be negative numbers. Two names may have
 * the same range, so the ipset MARKS, and not the range, shows which instance owns a mark.
 */
export type MarkRange = number;

/** Returns the range of the instance that serves Services with this proxy name. */
export function markRange(serviceProxyName: string): MarkRange {
  return serviceProxyName === "" ? 0x6b : 0x70 + ((hash("sha1", serviceProxyName, "buffer")[0] ?? 0) % 16);
}

/**
 * Returns the arguments (mark and mask) of `-m mark` that match all marks of a range, and those that match only marks
 * whose packets are masqueraded.
 */
export function markMatches(range: MarkRange): { readonly all: string; readonly masqueraded: string } {
  const [first, masqueraded] = [range << 24, (range << 24) | masqueradeFlag].map((mark) => `0x${mark.toString(16)}`);
  return { all: `${first}/0xff000000`, masqueraded: `${masqueraded}/0xff800000` };
}

/**
 * Firewall marks of the Service ports that need a second virtual server: with external policy Local, pods and the node
 * reach all endpoints, but outside clients reach only endpoints on the node. IPVS distinguishes these senders by the
 * mark of the packet.
 *
 * A mark is derived from the name of the Service port, so the marks are the same after a restart. Only if two names
 * have the same hash do their marks depend on the order in which they are allocated.
 */
export class FirewallMarks {
  readonly #range: MarkRange;
  readonly #idCount: number;
  readonly #idsByService = new Map<string, Map<string, number>>();
  readonly #taken = new Set<number>();

  /** `idCount` is the number of ids. Default 2 million, more than the ipset MARKS has room for (`maxElements`). */
  constructor(range: MarkRange, idCount = maxIds) {
    this.#range = range;
    this.#idCount = idCount;
  }

  /**
   * Returns the mark of a Service port. Packets that must be masqueraded get a different mark. *Shape of the port's
   * name:* `ns/web:http`. Errors: throws if all marks are taken.
   */
  markOf(family: Family, port: { readonly name: string; readonly protocol: Protocol }, isMasqueraded: boolean): number {
    const isUdp = port.protocol === "UDP";
    const flags = (isMasqueraded ? masqueradeFlag : 0) | (family === "v6" ? familyFlag : 0) | (isUdp ? udpFlag : 0);
    return (this.#range << 24) | flags | this.#idOf(port);
  }

  /**
   * Releases the marks of all ports of a Service. Must be called before the Service is rendered again, because ports
   * that it no longer has would keep theirs.
   */
  release(service: ServiceKey): void {
    for (const id of this.#idsByService.get(service)?.values() ?? []) this.#taken.delete(id);
    this.#idsByService.delete(service);
  }

  #idOf({ name, protocol }: { readonly name: string; readonly protocol: Protocol }): number {
    const [service = ""] = name.split(":");
    const port = `${name}/${protocol}`;
    const ids = this.#idsByService.get(service) ?? new Map<string, number>();
    const known = ids.get(port);
    if (known !== undefined) return known;
    if (this.#taken.size >= this.#idCount) throw new Error(`all ${this.#idCount} firewall marks are taken`);
    let id = hash("sha1", port, "buffer").readUInt32BE() % this.#idCount;
    while (this.#taken.has(id)) id = (id + 1) % this.#idCount;
    this.#taken.add(id);
    this.#idsByService.set(service, ids.set(port, id));
    return id;
  }
}

/** Returns the family of one of our marks. */
export function familyOfMark(mark: number): Family {
  return (mark & familyFlag) === 0 ? "v4" : "v6";
}

/** True for the mark of a UDP port. */
export function isUdpMark(mark: number): boolean {
  return (mark & udpFlag) !== 0;
}
