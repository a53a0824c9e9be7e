import { createHash } from "node:crypto";
import { addressAndPort, type Family } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import { CodedError } from "@kpng/process/process-error.ts";
import { isUdpMark, type MarkRange, markRange } from "./firewall-marks.ts";

/**
 * Kinds of objects in the kernel that serve Services. Every object has a key and a value, both written in the syntax of
 * the tool that writes the object. `diffObjects` can therefore compare all kinds in the same way.
 *
 * - server: a virtual server. *Shape:* `-t 10.96.0.1:80` → `-s rr -p 10800`.
 * - real: a real server of a virtual server. *Shape:* `-t 10.96.0.1:80 -r 10.1.1.7:8080` → `-w 1`.
 * - address: an address of our interface, without a value. *Shape:* `10.96.0.1`.
 * - the role of an ipset: an element of it. *Shape:* `10.96.0.1,tcp:80` → `` or `skbmark 0x6b000001`.
 */
export type ObjectKind = "server" | "real" | "address" | SetRole;

/**
 * Value of a real server that gets no new connections. Endpoints that only finish their UDP flows have this desired
 * value. `diffObjects` never adds such a real server, because an endpoint that is not installed has no flows.
 */
export const finishing = "-w 0";

/** Values of objects, keyed by kind and key. */
export type ObjectMap = ReadonlyMap<ObjectKind, ReadonlyMap<string, string>>;

/** Identifies a virtual server in the syntax of ipvsadm. *Shape:* `-t 10.96.0.1:80`, `-f 1795162113 -6`. */
export type ServerId = string;

const serviceFlags: Readonly<Record<Protocol, string>> = { TCP: "-t", UDP: "-u", SCTP: "--sctp-service" };
const protocolByFlag = new Map(Object.entries(serviceFlags).map(([protocol, flag]) => [flag, protocol.toLowerCase()]));

/** Returns the identifier of the virtual server at an address. */
export function addressServer(address: string, protocol: Protocol, port: number): ServerId {
  return `${serviceFlags[protocol]} ${addressAndPort(address, port)}`;
}

/** Returns the identifier of the virtual server for a firewall mark. */
export function markServer(mark: number, family: Family): ServerId {
  return `-f ${mark}${family === "v6" ? " -6" : ""}`;
}

/** Returns the element of an ipset of type hash:ip,port. */
export function portElement(address: string, protocol: Protocol, port: number): string {
  return `${address},${protocol.toLowerCase()}:${port}`;
}

/** Returns the element for a mark in the ipset MARKS, which has the form of an IPv4 address. *Shape:* `107.0.0.1`. */
export function markElement(mark: number): string {
  return [24, 16, 8, 0].map((bits) => (mark >>> bits) & 0xff).join(".");
}

/** Returns the key of a real server. */
export function realKey(server: ServerId, address: string, port: number): string {
  return `${server} -r ${addressAndPort(address, port)}`;
}

/** Returns the virtual server to which the key of a real server belongs. */
export function serverOfReal(key: string): ServerId {
  return key.slice(0, key.indexOf(" -r "));
}

type ServerParts =
  /** A virtual server of a firewall mark. `element` identifies it in the ipset MARKS. */
  | { readonly kind: "mark"; readonly mark: number; readonly element: string; readonly family: Family }
  /** A virtual server at an address and port. `element` identifies it in the ipset SERVERS. */
  | { readonly kind: "address"; readonly address: string; readonly element: string; readonly family: Family };

/** Parses the identifier of a virtual server; returns undefined if it is not one. */
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

/**
 * True if connections to the virtual server may end on their own. This is the case for all protocols except UDP, which
 * has no connections.
 */
export function isDrainable(id: ServerId): boolean {
  const parts = parseServer(id);
  if (parts === undefined) return false;
  return parts.kind === "mark" ? !isUdpMark(parts.mark) : !id.startsWith(`${serviceFlags.UDP} `);
}

/**
 * Types of the ipsets of one family, by their role in the rules.
 *
 * Never change the type or the options of a role: add a role with a new name. Ipsets outlive the process, and a sync
 * creates only missing ones, without comparing types. An ipset of another type, or without `skbinfo`, would refuse the
 * new elements, so that each sync would fail with COMMIT_REJECTED. A type cannot be replaced while rules refer to the
 * ipset. `--cleanup` destroys only the ipsets of these roles, so the code that removes a role must destroy its ipset.
 *
 * - ADDRESSES: service addresses on our interface.
 * - SERVERS: address and port of each virtual server that we created. After a restart, this set shows which virtual
 *   servers are ours.
 * - MARKS: the same for virtual servers of firewall marks. Marks are written as IPv4 addresses, because there is no set
 *   type for marks alone.
 * - REFUSED, DROPPED: frontends whose packets are refused, or discarded.
 * - DROP-OUTSIDE: frontends that serve pods and the node but discard packets from outside.
 * - RANGED, SOURCES: frontends with source ranges, and the clients that they admit.
 * - MASQ, MASQ-OTHERS: frontends whose packets are masqueraded: all packets, or all except those from pods.
 * - POD-MARKS, NODE-MARKS: frontends with policy Local, and the firewall mark for packets from pods or from the node.
 * - HAIRPIN: endpoints that may reach themselves: each address twice. There is no set type for two addresses without
 *   prefix lengths.
 * - HEALTH: ports of health checks.
 */
const setTypes = {
  ADDRESSES: "hash:ip",
  SERVERS: "hash:ip,port",
  MARKS: "hash:ip",
  REFUSED: "hash:ip,port",
  DROPPED: "hash:ip,port",
  "DROP-OUTSIDE": "hash:ip,port",
  RANGED: "hash:ip,port",
  SOURCES: "hash:ip,port,net",
  MASQ: "hash:ip,port",
  "MASQ-OTHERS": "hash:ip,port",
  "POD-MARKS": "hash:ip,port",
  "NODE-MARKS": "hash:ip,port",
  HAIRPIN: "hash:net,net",
  HEALTH: "bitmap:port",
} as const;

/**
 * Maximum number of elements of an ipset: 16 times the default of ipset. The kernel allocates memory as elements are
 * added. The run of ipset ends at the first element that does not fit, and the sync fails with COMMIT_REJECTED.
 */
const maxElements = 1_048_576;

/** Ipsets whose elements carry the mark that packets get from the target SET. */
const markingRoles: ReadonlySet<SetRole> = new Set(["POD-MARKS", "NODE-MARKS"]);

/** Role of an ipset. */
export type SetRole = keyof typeof setTypes;

/** All roles, in a fixed order. */
export const setRoles = Object.keys(setTypes) as readonly SetRole[];

/** Names of everything that one instance of the backend owns on the node. */
export interface ObjectNames {
  /** Prefix of the names of all chains and ipsets. *Shape:* `KPNGIPVS`, or `KPNGIPVS1a2b3c4d` with a proxy name. */
  readonly prefix: string;
  /** The dummy interface with the service addresses; at most 15 characters. *Shape:* `kube-ipvs0`, `kpngv-1a2b3c4d`. */
  readonly interfaceName: string;
  readonly markRange: MarkRange;
}

/**
 * The interface of the instance without a proxy name, and of kube-proxy in ipvs mode. Other programs know this name: if
 * this interface exists, Felix applies pods' ingress policies to connections through IPVS, but not at Service addresses
 * that are on any other interface, because it considers these the node's own (felix/dataplane/driver.go,
 * felix/rules/static.go). The address detection of CNI plugins skips this interface, too.
 */
export const sharedInterface = "kube-ipvs0";

/**
 * Returns the names of the instance that serves Services with this proxy name. The prefix does not begin with `KPNG-`,
 * because kpng-iptables removes unknown chains with that prefix.
 */
export function objectNames(serviceProxyName: string): ObjectNames {
  const range = markRange(serviceProxyName);
  if (serviceProxyName === "") return { prefix: "KPNGIPVS", interfaceName: sharedInterface, markRange: range };
  const hash = createHash("sha256").update(serviceProxyName).digest("hex").slice(0, 8);
  return { prefix: `KPNGIPVS${hash}`, interfaceName: `kpngv-${hash}`, markRange: range };
}

/**
 * Returns the name of an ipset. *Shape:* `KPNGIPVS-SERVERS`, `KPNGIPVS-6-SERVERS`. The kernel permits 31 characters, so
 * a role has at most 12: `KPNGIPVS1a2b3c4d-6-DROP-OUTSIDE`.
 */
export function setName({ prefix }: ObjectNames, family: Family, role: SetRole): string {
  return `${prefix}-${family === "v6" ? "6-" : ""}${role}`;
}

/** Returns the line for `ipset restore` that creates a set. Each family has its own set, with its own name. */
export function setCreation(names: ObjectNames, family: Family, role: SetRole): string {
  const type = setTypes[role];
  const inet = family === "v4" || role === "MARKS" ? "inet" : "inet6";
  const extension = markingRoles.has(role) ? " skbinfo" : "";
  const options = type === "bitmap:port" ? "range 0-65535" : `family ${inet} maxelem ${maxElements}${extension}`;
  return `create ${setName(names, family, role)} ${type} ${options}`;
}

/** Error codes of kpng-ipvs. `docs/errors.md` explains each. */
export type BackendIpvsErrorCode =
  | "IPVS_UNAVAILABLE"
  | "TOOL_MISSING"
  | "COMMIT_REJECTED"
  | "READ_FAILED"
  | "MOVE_TOO_EARLY"
  | "POLICY_BYPASS";

/** An error of the ipvs backend. */
export class BackendIpvsError extends CodedError<BackendIpvsErrorCode> {
  override readonly name = "BackendIpvsError";
}
