import { isIn } from "@kpng/model/cidr.ts";
import { candidates } from "./candidates.ts";
import type { Match, Rule, Ruleset } from "./rule.ts";

/** A packet on its way through a node. */
export interface Traced {
  readonly protocol: string;
  readonly source: string;
  readonly destination: string;
  readonly port: number;
  readonly inInterface: string | undefined;
  readonly outInterface: string | undefined;
  readonly state: "NEW" | "INVALID";
  readonly mark: number;
  /** Destination at the start. */
  readonly original: { readonly address: string; readonly port: number };
  readonly isTranslated: boolean;
  readonly isMasqueraded: boolean;
  /** A rule said that it may pass; else only no rule said anything. */
  readonly isAccepted: boolean;
  /** It got its endpoint because the client was remembered, for so long; undefined if by chance. */
  readonly affinitySeconds: number | undefined;
  isLocal(address: string): boolean;
}

/** One way that a packet may have taken so far. */
export interface Branch {
  readonly packet: Traced;
  readonly verdict: "accept" | "drop" | "reject";
}

/** A way out of a chain: decided, or back to the chain that jumped here. */
interface Step {
  readonly packet: Traced;
  readonly verdict: Branch["verdict"] | "back";
}

/** More jumps inside one another than any ruleset has. */
const maxDepth = 32;

/** Follows a packet through a built-in chain; whoever comes to its end, or is sent back from it, meets its policy. */
export function walk(ruleset: Ruleset, table: string, chain: string, packet: Traced): readonly Branch[] {
  const rules = ruleset.get(table)?.get(chain);
  if (rules === undefined) return [{ packet, verdict: "accept" }];
  const policy = rules.at(-1)?.isPolicy === true ? "drop" : "accept";
  return walkChain(ruleset, table, chain, packet, 0).map((step) => ({
    ...step,
    verdict: step.verdict === "back" ? policy : step.verdict,
  }));
}

function walkChain(ruleset: Ruleset, table: string, chain: string, packet: Traced, depth: number): readonly Step[] {
  const rules = ruleset.get(table)?.get(chain);
  if (rules === undefined) throw new Error(`table ${table} has no chain ${chain}`);
  if (depth > maxDepth) throw new Error(`more than ${maxDepth} jumps, the last to ${chain}: a loop`);
  const ended: Step[] = [];
  // The packet as it comes to the next rule: more than one where rules changed its mark in only some of the ways.
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

/** Carries a rule's target out: the ways that end here, and the packets that go on to the next rule. */
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
      // Whoever was sent by goto returns past this chain.
      if (target.isGoto) return { stops: steps, passes: [] };
      return {
        stops: steps.filter(({ verdict }) => verdict !== "back"),
        passes: steps.filter(({ verdict }) => verdict === "back").map((step) => step.packet),
      };
    }
  }
}

function matches(rule: Rule, packet: Traced): "yes" | "no" | "maybe" {
  let result: "yes" | "maybe" = "yes";
  for (const match of rule.matches) {
    if (match.kind === "maybe") result = "maybe";
    else if (match.kind === "notUnderstood") throw new Error(match.why);
    else if (holds(match, packet) === match.isNot) return "no";
  }
  return result;
}

function holds(match: Exclude<Match, { kind: "maybe" | "notUnderstood" }>, packet: Traced): boolean {
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
      // First packets are new, and after a rule gave them another destination also DNAT.
      return match.states.includes(packet.state) || (packet.isTranslated && match.states.includes("DNAT"));
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
