import { nextTurn } from "@kpng/backend-kit/sync/next-turn.ts";
import type { PacketOutcome } from "@kpng/model/packet-outcome.ts";
import { parseRuleset } from "@kpng/packet-tracer/parse-ruleset.ts";
import type { Ruleset } from "@kpng/packet-tracer/rule.ts";
import { trace } from "@kpng/packet-tracer/trace.ts";
import { reasonOf } from "@kpng/process/log.ts";
import type { Difference } from "./difference.ts";
import { frontendsOf } from "./frontends.ts";
import { joinFrontends, type Probe, type ProbeWorld, probesOf, serviceOf } from "./probes.ts";

/** The rules of both proxies, of one family, as iptables-save prints them. */
export interface TwoRules {
  readonly kubeProxy: string;
  readonly kpng: string;
}

export interface Comparison {
  readonly differences: readonly Difference[];
  /** How many packets were traced. */
  readonly packets: number;
  /** How many Services either has a rule for. */
  readonly services: number;
}

/** The event loop turns after so many packets. */
const packetsPerTurn = 200;

/**
 * Asks both rulesets what becomes of the same packets and returns where they differ.
 *
 * Only the first packet of a connection is asked about: by it the kernel decides for all of them. Not compared: how often
 * each endpoint is chosen, and a pod of another node that reaches itself by way of this one, which kube-proxy masquerades
 * and we do not (README, "Where the form differs").
 *
 * *Cost:* about 0.1 ms for a packet; some five packets for each address and port. Ends early when `signal` aborts.
 */
export async function compareRules(rules: TwoRules, world: ProbeWorld, signal: AbortSignal): Promise<Comparison> {
  const kubeProxy = parseRuleset(rules.kubeProxy);
  await nextTurn();
  const kpng = parseRuleset(rules.kpng);
  await nextTurn();
  const frontends = joinFrontends(frontendsOf(kubeProxy), frontendsOf(kpng));
  const differences: Difference[] = [];
  const services = new Set<string>();
  let packets = 0;
  for (const probe of probesOf(frontends, world)) {
    if (signal.aborted) break;
    services.add(serviceOf(probe.frontend.servicePort));
    const [theirs, ours] = [ask(kubeProxy, probe, world), ask(kpng, probe, world)];
    if (theirs.join("\n") !== ours.join("\n")) differences.push(toDifference(probe, world, theirs, ours));
    if (++packets % packetsPerTurn === 0) await nextTurn();
  }
  return { differences, packets, services: services.size };
}

/** What may become of a packet, as text, sorted; a single line if the way is not understood. */
function ask(ruleset: Ruleset, { packet }: Probe, { facts }: ProbeWorld): readonly string[] {
  try {
    return trace(ruleset, facts, packet).map(describeOutcome).sort();
  } catch (error) {
    return [`not understood: ${reasonOf(error)}`];
  }
}

export function describeOutcome(outcome: PacketOutcome): string {
  switch (outcome.kind) {
    case "refused":
      return "refused";
    case "dropped":
      return "dropped";
    case "untouched":
      return outcome.isAccepted === true ? "let in" : "no rule";
    case "to": {
      const { address, port, isMasqueraded, affinitySeconds } = outcome;
      const host = address.includes(":") ? `[${address}]` : address;
      const notes = [
        ...(isMasqueraded ? ["masqueraded"] : []),
        ...(affinitySeconds === undefined ? [] : [`stays ${affinitySeconds} s`]),
      ];
      return [`${host}:${port}`, ...(notes.length > 0 ? [`(${notes.join(", ")})`] : [])].join(" ");
    }
  }
}

function toDifference(
  { frontend, addressKind, sender, packet }: Probe,
  { family }: ProbeWorld,
  kubeProxy: readonly string[],
  kpng: readonly string[],
): Difference {
  const { protocol, source, destination, port, inInterface } = packet;
  return {
    servicePort: frontend.servicePort,
    family,
    addressKind,
    protocol,
    address: destination,
    port,
    sender,
    source,
    ...(inInterface === undefined ? {} : { inInterface }),
    kubeProxy,
    kpng,
  };
}
