import { hash } from "node:crypto";
import type { Family } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";

const masqueradeFlag = 0x0080_0000;
const familyFlag = 0x0040_0000;
const udpFlag = 0x0020_0000;
const idCount = 0x0020_0000;

/**
 * The range of firewall marks of one instance: bits 24 to 31. *Shape:* `0x6b` for the default instance, one of `0x70`
 * to `0x7f` with a proxy name.
 */
export type MarkRange = number;

/** Returns the range of the instance that serves Services with this proxy name. */
export function markRange(serviceProxyName: string): MarkRange {
  return serviceProxyName === "" ? 0x6b : 0x70 + ((hash("sha1", serviceProxyName, "buffer")[0] ?? 0) % 16);
}

/** Returns mark and mask, for `-m mark`, of all marks of a range, and of those whose packets are masqueraded. */
export function markMatches(range: MarkRange): { readonly all: string; readonly masqueraded: string } {
  const byte = range.toString(16);
  return { all: `0x${byte}000000/0xff000000`, masqueraded: `0x${byte}800000/0xff800000` };
}

/**
 * Firewall marks of the Service ports that need a second virtual server: with external policy Local, pods and the node
 * reach all endpoints, and clients outside only those of the node. IPVS knows the two apart by the mark of the packet.
 * `renderService` asks for marks.
 *
 * A mark is a function of the name of the Service port, so a restart finds the same marks; only two names with the same
 * hash depend on their order. *Bound:* 2 million ports.
 */
export class FirewallMarks {
  readonly #range: MarkRange;
  readonly #idByPort = new Map<string, number>();
  readonly #taken = new Set<number>();

  constructor(range: MarkRange) {
    this.#range = range;
  }

  /** Returns the mark of a Service port; another one for packets that must be masqueraded. */
  markOf(family: Family, port: { readonly name: string; readonly protocol: Protocol }, isMasqueraded: boolean): number {
    const isUdp = port.protocol === "UDP";
    const flags = (isMasqueraded ? masqueradeFlag : 0) | (family === "v6" ? familyFlag : 0) | (isUdp ? udpFlag : 0);
    return (this.#range << 24) | flags | this.#idOf(`${port.name}/${port.protocol}`);
  }

  #idOf(port: string): number {
    const known = this.#idByPort.get(port);
    if (known !== undefined) return known;
    let id = hash("sha1", port, "buffer").readUInt32BE() % idCount;
    while (this.#taken.has(id)) id = (id + 1) % idCount;
    this.#taken.add(id);
    this.#idByPort.set(port, id);
    return id;
  }
}

/** True for a mark of a range in this family. */
export function isMarkOf(range: MarkRange, mark: number, family: Family): boolean {
  return mark >>> 24 === range && familyOfMark(mark) === family;
}

/** Returns the family of a mark of ours. */
export function familyOfMark(mark: number): Family {
  return (mark & familyFlag) === 0 ? "v4" : "v6";
}

/** True for the mark of a UDP port. */
export function isUdpMark(mark: number): boolean {
  return (mark & udpFlag) !== 0;
}
