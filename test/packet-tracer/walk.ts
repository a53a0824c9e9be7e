import { isIn } from "@kpng/model/address.ts";
import type { Match, Rule, Ruleset } from "./parse-ruleset.ts";

/** A packet on its path through a node. */
export interface Traced {
  readonly protocol: string;
  readonly source: string;
  readonly destination: string;
  readonly port: number;
  readonly inInterface: string | undefined;
  readonly outInterface: string | undefined;
  readonly mark: number;
  /** The destination before any rule changed it. */
  readonly original: { readonly address: string; readonly port: number };
  readonly isTranslated: boolean;
  readonly isMasqueraded: boolean;
  /** A rule let it pass; false if no rule decided. */
  readonly isAccepted: boolean;
  /** How long the client stays with its endpoint, if affinity chose it; undefined if chance did. *Unit:* seconds. */
  readonly affinitySeconds: number | undefined;
  isLocal(address: string): boolean;
}

/** A shorter chain is faster without an index. */
const minRules = 32;

/** Rules of a chain with their positions: by the one address or port that they are about, or under "others". */
type ChainIndex = ReadonlyMap<string | number, readonly (readonly [position: number, rule: Rule])[]>;

const indexes = new WeakMap<readonly Rule[], ChainIndex>();

/**
 * Returns the rules of a chain that may match a packet, in their order. The result of a trace does not depend
 * on it, only its speed:
 *
 * kube-proxy's KUBE-SERVICES and KUBE-NODEPORTS have a rule for each address and port of a cluster: comparing each
 * packet with all of them would take time proportional to the square of their number.
 */
function candidates(rules: readonly Rule[], { destination, port }: Traced): readonly Rule[] {
  if (rules.length < minRules) return rules;
  let index = indexes.get(rules);
  if (index === undefined) {
    index = Map.groupBy([...rules.entries()], ([, rule]) => keyOf(rule));
    indexes.set(rules, index);
  }
  const found = [destination, port, "others"].flatMap((key) => index.get(key) ?? []);
  return found.sort(([a], [b]) => a - b).map(([, rule]) => rule);
}

/** Returns the destination that a rule is about, otherwise its port, otherwise "others". */
function keyOf({ matches }: Rule): string | number {
  for (const match of matches) {
    if (match.kind !== "address" || match.of !== "destination" || match.isNot) continue;
    const [address = "", length] = match.cidr.split("/");
    if (length === undefined || length === (address.includes(":") ? "128" : "32")) return address;
  }
  const port = matches.find((match) => match.kind === "port" && !match.isNot && match.from === match.to);
  return port?.kind === "port" ? port.from : "others";
}

/**
 * A path that a packet may have taken so far. `trace.ts` walks a packet through each chain; where a rule may or may not
 * match, it follows both paths.
 */
export interface Branch {
  readonly packet: Traced;
  readonly verdict: "accept" | "drop" | "reject";
}

/** The end of a chain: a verdict, or "back" to the chain that jumped to it. */
interface Step {
  readonly packet: Traced;
  readonly verdict: Branch["verdict"] | "back";
}

/** Maximum number of nested jumps, more than any rule set has; beyond it there is a loop. */
const maxDepth = 32;

/**
 * Follows a packet through a built-in chain and all chains that it jumps to. The chain's policy decides on packets that
 * reach its end or return.
 */
export function walk(ruleset: Ruleset, table: string, chain: string, packet: Traced): readonly Branch[] {
  const rules = ruleset.get(table)?.get(chain);
  if (rules === undefined) return [{ packet, verdict: "accept" }];
  const policy = rules.at(-1)?.isPolicy === true ? "drop" : "accept";
  return walkChain(ruleset, table, chain, packet, 0).map((step) => ({
    ...step,
    verdict: step.verdict === "back" ? policy : step.verdict,
  }));
}

/** Follows a packet through one chain. Returns each way in which it may leave the chain. */
function walkChain(ruleset: Ruleset, table: string, chain: string, packet: Traced, depth: number): readonly Step[] {
  const rules = ruleset.get(table)?.get(chain);
  if (rules === undefined) throw new Error(`table ${table} has no chain ${chain}`);
  if (depth > maxDepth) throw new Error(`more than ${maxDepth} jumps, the last to ${chain}: a loop`);
  const ended: Step[] = [];
  // The variants of the packet before the next rule: more than one if a rule changed its mark on only some paths.
  let passing: readonly Traced[] = [packet];
  for (const rule of candidates(rules, packet)) {
    const next: Traced[] = [];
    for (const each of passing) {
      const matching = matches(rule, each);
      if (matching !== "yes") next.push(each);
      if (matching === "no") continue;
      const { affinitySeconds = each.affinitySeconds } = rule;
      const { stops, passes } = act(ruleset, table, rule, { ...each, affinitySeconds }, depth);
      ended.push(...stops);
      next.push(...passes);
    }
    passing = unique(next);
    if (passing.length === 0) break;
  }
  return [...ended, ...passing.map((each) => ({ packet: each, verdict: "back" as const }))];
}

/** Applies a rule's target: returns the paths that end here and the packets that reach the next rule. */
function act(ruleset: Ruleset, table: string, { target }: Rule, packet: Traced, depth: number) {
  const stop = (verdict: Step["verdict"], changed = packet) => ({ stops: [{ packet: changed, verdict }], passes: [] });
  switch (target.kind) {
    case "none":
      return { stops: [], passes: [packet] };
    case "mark":
      return { stops: [], passes: [{ ...packet, mark: ((packet.mark & ~target.mask) ^ target.value) >>> 0 }] };
    case "return":
      return stop("back");
    case "accept":
      return stop("accept", { ...packet, isAccepted: true });
    case "drop":
    case "reject":
      return stop(target.kind);
    case "masquerade":
      return stop("accept", { ...packet, isMasqueraded: true });
    case "dnat": {
      const { address, port = packet.port } = target;
      return stop("accept", { ...packet, destination: address, port, isTranslated: true });
    }
    case "jump": {
      const steps = walkChain(ruleset, table, target.chain, packet, depth + 1);
      return {
        stops: steps.filter(({ verdict }) => verdict !== "back"),
        passes: steps.filter(({ verdict }) => verdict === "back").map((step) => step.packet),
      };
    }
  }
}

/** Whether all matches of a rule hold for a packet; "maybe" if that depends on chance or affinity. */
function matches(rule: Rule, packet: Traced): "yes" | "no" | "maybe" {
  let result: "yes" | "maybe" = "yes";
  for (const match of rule.matches) {
    if (match.kind === "maybe") result = "maybe";
    else if (holds(match, packet) === match.isNot) return "no";
  }
  return result;
}

/** Whether the condition of one match holds; the caller inverts it if `isNot` is set. */
function holds(match: Exclude<Match, { kind: "maybe" }>, packet: Traced): boolean {
  switch (match.kind) {
    case "address":
      return isIn(packet[match.of], match.cidr);
    case "protocol":
      return packet.protocol === match.protocol;
    case "port":
      return packet.port >= match.from && packet.port <= match.to;
    case "localAddress":
      return packet.isLocal(packet[match.of]);
    case "mark":
      return (packet.mark & match.mask) >>> 0 === match.value;
    case "state":
      // A packet whose destination a rule has changed is in state DNAT too.
      return match.states.includes("NEW") || (packet.isTranslated && match.states.includes("DNAT"));
    case "originalAddress":
      return isIn(packet.original.address, match.cidr);
    case "originalPort":
      return packet.original.port === match.port;
    case "interface": {
      const name = match.of === "in" ? packet.inInterface : packet.outInterface;
      if (name === undefined) return false;
      return match.pattern.endsWith("+") ? name.startsWith(match.pattern.slice(0, -1)) : name === match.pattern;
    }
  }
}

function unique(packets: readonly Traced[]): readonly Traced[] {
  if (packets.length < 2) return packets;
  return [...new Map(packets.map((packet) => [JSON.stringify(packet), packet])).values()];
}
