import type { Family } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import type { PodTraffic } from "@kpng/service-plan/service-plan.ts";

/** A table to which rules are written. */
export type Table = "filter" | "nat";

/**
 * All tables, in the order in which a transaction commits them. With filter first, packets to a Service that loses its
 * endpoints are refused before the jump to the endpoints is removed. kube-proxy has the same order.
 */
export const tables: readonly Table[] = ["filter", "nat"];

/** Table and name of a chain. *Shape:* `nat KPNG-SERVICES`. */
export type ChainId = `${Table} ${string}`;

/** The rules of a chain as lines of a transaction, each `-A CHAIN …\n`; "" for a chain without rules. */
export type ChainBody = string;

/** Returns the identifier of a chain. */
export function chainId(table: Table, chain: string): ChainId {
  return `${table} ${chain}`;
}

/** Returns the table and the name in an identifier. */
export function splitChainId(id: ChainId): { readonly table: Table; readonly chain: string } {
  const at = id.indexOf(" ");
  return { table: id.startsWith("nat ") ? "nat" : "filter", chain: id.slice(at + 1) };
}

/** Returns the rules of a chain, without `-A CHAIN `. */
export function rulesOf(chain: string, body: ChainBody): readonly string[] {
  const start = `-A ${chain} `.length;
  const lines = body.split("\n").slice(0, -1);
  return lines.map((line) => line.slice(start));
}

// Functions that return the parts of rules. All renderers in this folder call them and join the parts with `rule`. The
// parts have the form and order in which iptables-save prints them (1.8.9, -nft and -legacy alike): source,
// destination, interface, protocol, then matches. Installed rules can therefore be compared as text.

/** The longest comment that the kernel accepts: 256 bytes including the terminating zero. */
const maxCommentLength = 255;

/**
 * *Shape:* `-m comment --comment "ns/name:port cluster IP"`. `text` must contain a character other than letters, digits,
 * `_` and `-`; otherwise iptables-save prints no quotes, and the rule always differs.
 */
export function comment(text: string): string {
  // A name from a state file may contain any character. Characters that would need escaping in quotes become question
  // marks.
  return `-m comment --comment "${text.replace(/[^ !#-&(-[\]-~]/g, "?").slice(0, maxCommentLength)}"`;
}

/** Formats one address as iptables-save prints it: `10.0.0.1/32`. */
export function host(family: Family, address: string): string {
  return `${address}/${family === "v4" ? 32 : 128}`;
}

/** Returns the match for a protocol; "" for all protocols. *Shape:* `-p tcp`. */
export function ifProtocol(protocol: Protocol | undefined): string {
  return protocol === undefined ? "" : `-p ${protocol.toLowerCase()}`;
}

/** Returns the match for a destination port; "" for all ports. *Shape:* `-m tcp --dport 80`. */
export function ifPort(protocol: Protocol | undefined, port: number | undefined): string {
  return protocol === undefined || port === undefined ? "" : `-m ${protocol.toLowerCase()} --dport ${port}`;
}

/**
 * Returns the match for one in `count` packets, chosen at random. The kernel rounds the probability to units of 2⁻³¹.
 */
export function oneIn(count: number): string {
  return `-m statistic --mode random --probability ${(Math.round(2 ** 31 / count) / 2 ** 31).toFixed(11)}`;
}

/** Formats a mark as iptables prints it: `0x4000/0x4000`. */
export function markBits(mark: number): string {
  return `0x${mark.toString(16)}/0x${mark.toString(16)}`;
}

/**
 * Jump to the target that gives a connection the node's address. The source port is random (`--random-fully`, iptables
 * 1.6.2), because a packet is lost if two CPUs choose the next free port at the same moment.
 */
export const masquerade = "-j MASQUERADE --random-fully";

/** Returns the name and options, without `-j`, of the target that rejects a packet and sends an error to the client. */
export function reject(family: Family): string {
  return `REJECT --reject-with ${family === "v4" ? "icmp-port-unreachable" : "icmp6-port-unreachable"}`;
}

/**
 * The match for packets from pods. One field contains the match and the other is "", because iptables-save prints the
 * two kinds in different positions.
 */
interface PodMatch {
  /** Printed before the destination. */
  readonly source: string;
  /** Printed after the destination. */
  readonly interface: string;
}

/** Returns the match for packets that pods send, or with `not` "! " for all others. */
export function ifPod(traffic: PodTraffic, not: "" | "! " = ""): PodMatch {
  switch (traffic.kind) {
    case "source":
      return { source: `${not}-s ${traffic.cidr}`, interface: "" };
    case "interface":
      return { source: "", interface: `${not}-i ${traffic.name}` };
    case "interfacePrefix":
      return { source: "", interface: `${not}-i ${traffic.prefix}+` };
  }
}

/** Joins the parts of a rule, leaving out empty ones. */
export function rule(...parts: readonly string[]): string {
  return parts.filter((part) => part !== "").join(" ");
}
