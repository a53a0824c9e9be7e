import { BlockList, isIP } from "node:net";
import type { Chains, Match, Rule } from "./rules.ts";

/** A packet that begins a connection. */
export interface Packet {
  readonly from: string;
  /** True if the source is an address of the node itself. */
  readonly isFromNode: boolean;
  readonly to: string;
  /** True if the destination is an address of the node itself. */
  readonly isToNode: boolean;
  /** "tcp", "udp" or "sctp". */
  readonly protocol: string;
  readonly port: number;
}

/** Where a packet may go: each of the endpoints, or what the filter says, or nowhere in particular. */
export interface Fate {
  readonly endpoints: readonly string[];
  /** "PASS" for a packet that no rule is about. */
  readonly verdict: "DNAT" | "REJECT" | "DROP" | "PASS";
  /** Times for which a client is remembered, in seconds; one for each endpoint. */
  readonly affinitySeconds: readonly number[];
}

/**
 * Returns what becomes of a packet, by all rules on its way through the kernel's hooks.
 *
 * A rule that matches by chance may match and may not; one that looks for an earlier connection never does.
 */
export function trace(chains: Chains, packet: Packet): Fate {
  const walk = new Walk(chains, packet);
  const { endpoints, affinitySeconds } = walk;
  const outcome = walk.enter("nat", packet.isFromNode ? "OUTPUT" : "PREROUTING");
  if (outcome === "DNAT") return { endpoints, affinitySeconds, verdict: "DNAT" };
  if (endpoints.length > 0) throw new Error(`only some of the packets to ${packet.to} are sent on`);
  const hooks = [packet.isFromNode ? "OUTPUT" : "", packet.isToNode ? "INPUT" : packet.isFromNode ? "" : "FORWARD"];
  for (const hook of hooks) {
    const verdict = walk.enter("filter", hook);
    if (verdict === "DROP" || verdict === "REJECT") return { endpoints, affinitySeconds, verdict };
  }
  return { endpoints, affinitySeconds, verdict: "PASS" };
}

class Walk {
  readonly endpoints: string[] = [];
  readonly affinitySeconds: number[] = [];
  readonly #chains: Chains;
  readonly #packet: Packet;

  constructor(chains: Chains, packet: Packet) {
    this.#chains = chains;
    this.#packet = packet;
  }

  /** Returns what ends the packet's way through the table for sure, or undefined where the chain lets it pass. */
  enter(table: string, chain: string): Fate["verdict"] | undefined {
    for (const rule of this.#chains.get(`${table}/${chain}`) ?? []) {
      if (rule.onlyTo !== undefined && rule.onlyTo !== this.#packet.to) continue;
      if (!rule.matches.every((match) => this.#holds(match, rule))) continue;
      const outcome = this.#apply(table, rule);
      const isByChance = rule.matches.some(({ name }) => name === "--probability");
      if (outcome !== undefined && !isByChance) return outcome;
    }
    return undefined;
  }

  #apply(table: string, { target, destination }: Rule): Fate["verdict"] | undefined {
    switch (target) {
      case "":
      case "MARK":
        return undefined;
      case "DNAT":
        this.endpoints.push(destination);
        return "DNAT";
      case "ACCEPT":
        return "PASS";
      case "REJECT":
      case "DROP":
        return target;
      case "RETURN":
      case "MASQUERADE":
        throw new Error(`no new packet comes to a rule with target ${target}`);
      default:
        return this.enter(table, target);
    }
  }

  #holds({ name, value, isNegated }: Match, rule: Rule): boolean {
    const { from, isFromNode, to, isToNode, protocol, port } = this.#packet;
    const says = (holds: boolean): boolean => holds !== isNegated;
    switch (name) {
      case "-s":
        return says(isWithin(from, value));
      case "-d":
        return says(isWithin(to, value));
      case "-p":
        return says(protocol === value);
      case "--dport":
        return says(String(port) === value);
      case "--src-type":
        return says(isFromNode && value === "LOCAL");
      case "--dst-type":
        return says(isToNode && value === "LOCAL");
      case "--ctstate":
        return says(value.split(",").includes("NEW"));
      case "--mark":
        return says(false);
      case "--rcheck":
        // Nobody is remembered yet; for how long somebody would be is noted.
        this.affinitySeconds.push(Number(rule.matches.find((match) => match.name === "--seconds")?.value));
        return false;
      case "--set":
      case "--rsource":
      case "--probability":
        return true;
      default:
        throw new Error(`a condition that the test does not know: ${name} ${value}`);
    }
  }
}

const blocks = new Map<string, BlockList>();

/** True if an address is in a CIDR, or is the address that stands in its place. */
export function isWithin(address: string, cidr: string): boolean {
  const family = isIP(address) === 4 ? "ipv4" : "ipv6";
  const [network = "", length = family === "ipv4" ? "32" : "128"] = cidr.split("/");
  if (isIP(network) !== isIP(address)) return false;
  let block = blocks.get(cidr);
  if (block === undefined) {
    block = new BlockList();
    block.addSubnet(network, Number(length), family);
    blocks.set(cidr, block);
  }
  return block.check(address, family);
}
