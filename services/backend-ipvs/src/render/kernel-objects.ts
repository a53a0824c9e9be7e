import { addressAndPort, type Family } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import { isUdpMark } from "./firewall-marks.ts";
import type { SetRole } from "./object-names.ts";

/**
 * Kinds of objects in the kernel that serve Services. Every object is a key and a value, both text in the syntax of the
 * tool that writes it. `diffObjects` can therefore compare all kinds alike.
 *
 * `renderService` makes objects with the functions of this file, and `read/` parses the same texts. They are in one
 * file, so that both sides agree about the texts.
 *
 * - server: virtual server. *Shape:* `-t 10.96.0.1:80` → `-s rr -p 10800`.
 * - real: real server of a virtual server. *Shape:* `-t 10.96.0.1:80 -r 10.1.1.7:8080` → `-w 1`.
 * - address: address of our interface, without a value. *Shape:* `10.96.0.1`.
 * - an ipset: element. *Shape:* `10.96.0.1,tcp:80` → `` or `skbmark 0x6b000001`.
 */
export type ObjectKind = "server" | "real" | "address" | SetRole;

/**
 * Value of a real server that gets no new connections. It is desired for endpoints that only finish UDP flows.
 * `diffObjects` never adds such a real server: an endpoint that is not installed has no flows.
 */
export const finishing = "-w 0";

/** Objects by kind and key. `renderService` makes those of one Service; `readObjects` those in the kernel. */
export type ObjectMap = ReadonlyMap<ObjectKind, ReadonlyMap<string, string>>;

/** Identifies a virtual server in the syntax of ipvsadm. *Shape:* `-t 10.96.0.1:80`, `-f 1795162113 -6`. */
export type ServerId = string;

const serviceFlags: Readonly<Record<Protocol, string>> = { TCP: "-t", UDP: "-u", SCTP: "--sctp-service" };
const flagByProtocol = new Map(Object.entries(serviceFlags).map(([protocol, flag]) => [protocol.toLowerCase(), flag]));
const protocolByFlag = new Map(Object.entries(serviceFlags).map(([protocol, flag]) => [flag, protocol.toLowerCase()]));

/** Returns the identifier of the virtual server at an address. */
export function addressServer(address: string, protocol: Protocol, port: number): ServerId {
  return `${serviceFlags[protocol]} ${addressAndPort(address, port)}`;
}

/** Returns the identifier of the virtual server of a firewall mark. */
export function markServer(mark: number, family: Family): ServerId {
  return `-f ${mark}${family === "v6" ? " -6" : ""}`;
}

/** Returns the element of an ipset of type hash:ip,port. */
export function portElement(address: string, protocol: Protocol, port: number): string {
  return `${address},${protocol.toLowerCase()}:${port}`;
}

/** Returns the identifier of the virtual server of an element that `portElement` returned. */
export function serverOfElement(element: string): ServerId {
  const [, address = "", protocol = "", port] = /^(.*),(.*):(\d+)$/.exec(element) ?? [];
  return `${flagByProtocol.get(protocol)} ${addressAndPort(address, Number(port))}`;
}

/** Returns the element of the ipset MARKS: the mark in the form of an IPv4 address. *Shape:* `107.0.0.1`. */
export function markElement(mark: number): string {
  return [24, 16, 8, 0].map((bits) => (mark >>> bits) & 0xff).join(".");
}

/** Returns the key of a real server. */
export function realKey(server: ServerId, address: string, port: number): string {
  return `${server} -r ${addressAndPort(address, port)}`;
}

/** Returns the virtual server of the key of a real server. */
export function serverOfReal(key: string): ServerId {
  return key.slice(0, key.indexOf(" -r "));
}

type ServerParts =
  /** `element` identifies it in the ipset MARKS. */
  | { readonly kind: "mark"; readonly mark: number; readonly element: string; readonly family: Family }
  /** `element` identifies it in the ipset SERVERS. */
  | { readonly kind: "address"; readonly address: string; readonly element: string; readonly family: Family };

/** Parses the identifier of a virtual server; undefined if it is not one. */
export function parseServer(id: ServerId): ServerParts | undefined {
  const [flag = "", place = "", six] = id.split(" ");
  if (flag === "-f") {
    const mark = Number(place);
    return { kind: "mark", mark, element: markElement(mark), family: six === "-6" ? "v6" : "v4" };
  }
  const protocol = protocolByFlag.get(flag);
  const [, address, port] = /^\[?([0-9a-f.:]+?)\]?:(\d+)$/.exec(place) ?? [];
  if (protocol === undefined || address === undefined) return undefined;
  return {
    kind: "address",
    address,
    element: `${address},${protocol}:${port}`,
    family: address.includes(":") ? "v6" : "v4",
  };
}

/** True if connections to the virtual server may end on their own: all but UDP, which has no connections. */
export function isDrainable(id: ServerId): boolean {
  const parts = parseServer(id);
  if (parts === undefined) return false;
  return parts.kind === "mark" ? !isUdpMark(parts.mark) : !id.startsWith(`${serviceFlags.UDP} `);
}
