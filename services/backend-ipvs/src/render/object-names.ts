import { createHash } from "node:crypto";
import type { Family } from "@kpng/model/address.ts";
import { type MarkRange, markRange } from "./firewall-marks.ts";

/**
 * Types of the ipsets of one family, by their role in the rules. `renderFrame` writes rules that look at the sets, and
 * `renderService` their elements. The names in this file are separate from both, because `read/` and `commit/` need
 * them, too.
 *
 * - ADDRESSES: service addresses on our interface.
 * - SERVERS: address and port of each virtual server that we created; also the record of what is ours after a restart.
 * - MARKS: the same record for firewall marks, which are written as IPv4 addresses: no type of set holds marks alone.
 * - REFUSED, DROPPED: frontends whose packets are refused or discarded.
 * - DROP-OUTSIDE: frontends that discard packets from outside, and serve those of pods and the node.
 * - RANGED, SOURCES: frontends with source ranges; the clients that they let through.
 * - MASQ, MASQ-OTHERS: frontends whose packets are masqueraded: all of them; all but those of pods.
 * - POD-MARKS, NODE-MARKS: frontends with policy Local, and the firewall mark of packets that a pod or the node sends.
 * - HAIRPIN: endpoints that may reach themselves.
 * - HEALTH: ports of health checks.
 * - RECORD: one element, whose comment is the record of the plans; no rule matches it.
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
  RECORD: "hash:ip",
} as const;

/** Types of ipsets, each once. *Shape:* `hash:net,net`. */
export const setTypeNames: readonly string[] = [...new Set(Object.values(setTypes))];

/** Role of an ipset. */
export type SetRole = keyof typeof setTypes;

/** All roles, in a fixed order. */
export const setRoles = Object.keys(setTypes) as readonly SetRole[];

/** Names of everything that one instance of the backend owns on the node. */
export interface ObjectNames {
  /** Begins the names of all chains and ipsets. *Shape:* `KPNGIPVS`, or `KPNGIPVS1a2b3c4d` with a proxy name. */
  readonly prefix: string;
  /** The dummy interface with the service addresses. *Shape:* `kube-ipvs0`, or `kpngv-1a2b3c4d`. */
  readonly interfaceName: string;
  readonly markRange: MarkRange;
}

/**
 * The interface of the instance without a proxy name, and of kube-proxy in ipvs mode. Other programs know this name:
 * Felix applies the ingress policies of pods to connections through IPVS if it exists, and only to addresses of
 * Services that are on no other interface, because it takes those for the node's own (felix/dataplane/driver.go,
 * felix/rules/static.go). Address detection of CNIs leaves it out, too.
 */
export const sharedInterface = "kube-ipvs0";

/**
 * Returns the names of the instance that serves Services with this proxy name. The prefix does not begin with `KPNG-`,
 * because kpng-iptables removes chains with that prefix that it does not know.
 */
export function objectNames(serviceProxyName: string): ObjectNames {
  const range = markRange(serviceProxyName);
  if (serviceProxyName === "") return { prefix: "KPNGIPVS", interfaceName: sharedInterface, markRange: range };
  const hash = createHash("sha256").update(serviceProxyName).digest("hex").slice(0, 8);
  return { prefix: `KPNGIPVS${hash}`, interfaceName: `kpngv-${hash}`, markRange: range };
}

/** Returns the name of an ipset. *Shape:* `KPNGIPVS-SERVERS`, `KPNGIPVS-6-SERVERS`; at most 31 characters. */
export function setName({ prefix }: ObjectNames, family: Family, role: SetRole): string {
  return `${prefix}-${family === "v6" ? "6-" : ""}${role}`;
}

/** Returns the line of `ipset restore` that creates a set; the set of another family has another name. */
export function setCreation(names: ObjectNames, family: Family, role: SetRole): string {
  const type = setTypes[role];
  const inet = family === "v4" || role === "MARKS" || role === "RECORD" ? "inet" : "inet6";
  const extension = role.endsWith("-MARKS") ? " skbinfo" : role === "RECORD" ? " comment" : "";
  const options = type === "bitmap:port" ? "range 0-65535" : `family ${inet} maxelem 1048576${extension}`;
  return `create ${setName(names, family, role)} ${type} ${options}`;
}
