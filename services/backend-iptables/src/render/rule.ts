import type { Family } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import type { LocalTraffic } from "./render-options.ts";

// Parts of rules, in the form and in the order in which iptables-save prints them (1.8.9, -nft and -legacy alike):
// source, destination, interface, protocol, then matches. So that what stands in the kernel is compared as text.

/** The longest comment that the kernel takes, 256 bytes with its end. */
const maxCommentLength = 255;

/** *Shape:* `-m comment --comment "ns/name:port cluster IP"`. */
export function comment(text: string): string {
  // A name from a state file may hold anything; what a quoted argument cannot hold as it is becomes a question mark.
  return `-m comment --comment "${text.replace(/[^ !#-&(-[\]-~]/g, "?").slice(0, maxCommentLength)}"`;
}

/** One address as iptables-save prints it: `10.0.0.1/32`. */
export function host(family: Family, address: string): string {
  return `${address}/${family === "v4" ? 32 : 128}`;
}

/** An endpoint as `--to-destination` takes it: `10.0.0.1:80`, `[fd00::1]:80`. */
export function addressAndPort(family: Family, address: string, port: number): string {
  return family === "v4" ? `${address}:${port}` : `[${address}]:${port}`;
}

export function protocolName(protocol: Protocol): string {
  return protocol.toLowerCase();
}

/** The probability of one in `count` as the kernel rounds it, in units of 2⁻³¹, and iptables-save prints it. */
export function oneIn(count: number): string {
  return `-m statistic --mode random --probability ${(Math.round(2 ** 31 / count) / 2 ** 31).toFixed(11)}`;
}

/** The mark as iptables prints it: `0x4000/0x4000`. */
export function markBits(mark: number): string {
  return `0x${mark.toString(16)}/0x${mark.toString(16)}`;
}

/**
 * Gives a connection the node's address. The source port is random, because two CPUs that pick the next free one at the
 * same moment lose a packet (`--random-fully`, iptables 1.6.2).
 */
export const masquerade = "-j MASQUERADE --random-fully";

/** A rule's target that refuses with an error to the client. */
export function reject(family: Family): string {
  return `REJECT --reject-with ${family === "v4" ? "icmp-port-unreachable" : "icmp6-port-unreachable"}`;
}

/** Where the match for a pod's packets goes in a rule; "" in the places that this way of telling does not need. */
export interface LocalMatch {
  /** Before the destination. */
  readonly source: string;
  /** After the destination. */
  readonly interface: string;
}

export function ifLocal(local: LocalTraffic): LocalMatch {
  return local.kind === "source"
    ? { source: `-s ${local.cidr}`, interface: "" }
    : { source: "", interface: `-i ${local.pattern}` };
}

export function ifNotLocal(local: LocalTraffic): LocalMatch {
  const match = ifLocal(local);
  return {
    source: match.source === "" ? "" : `! ${match.source}`,
    interface: match.interface === "" ? "" : `! ${match.interface}`,
  };
}

/** Joins the parts of a rule; empty ones are left out. */
export function rule(...parts: readonly string[]): string {
  return parts.filter((part) => part !== "").join(" ");
}
