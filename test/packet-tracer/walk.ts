import { isIn } from "@kpng/model/cidr.ts";
import { candidates } from "./candidates.ts";
import type { Match, Rule, Ruleset } from "./rule.ts";
import type { Traced } from "./traced.ts";

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
 * reach its end or return. `trace` calls it for each hook of the kernel. Separate from `trace`, because this file knows
 * only rules.
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
      // A packet sent by goto returns past this chain.
      if (target.isGoto) return { stops: steps, passes: [] };
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
    else if (match.kind === "notUnderstood") throw new Error(match.why);
    else if (holds(match, packet) === match.isNot) return "no";
  }
  return result;
}

/** Whether the condition of one match holds; the caller inverts it if `isNot` is set. */
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
      // A packet whose destination a rule has changed is in state DNAT too.
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
