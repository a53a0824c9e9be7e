import { nextTurn } from "@kpng/backend-kit/sync/next-turn.ts";
import { addressAndPort, type Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { PacketOutcome } from "@kpng/model/packet-outcome.ts";
import { parseNftRuleset } from "@kpng/packet-tracer/parse-nft-ruleset.ts";
import { parseRuleset } from "@kpng/packet-tracer/parse-ruleset.ts";
import type { Ruleset } from "@kpng/packet-tracer/rule.ts";
import { trace } from "@kpng/packet-tracer/trace.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { outcomes, type ProxyMode } from "@kpng/service-plan/outcomes.ts";
import type { PlannedNode } from "@kpng/service-plan/planned-node.ts";
import type { Difference } from "./difference.ts";
import { frontendsOfPlans, frontendsOfRules, unknownPorts } from "./frontends.ts";
import type { KubeProxyRules } from "./kube-proxy-rules.ts";
import type { NodeLinks } from "./node-links.ts";
import { joinFrontends, type Probe, probesOf, serviceOf } from "./probes.ts";

/** Result of {@link comparePackets}. */
export interface Comparison {
  readonly differences: readonly Difference[];
  /** Number of packets that were compared. */
  readonly packets: number;
  /** Number of Services that either side has a frontend of. */
  readonly services: number;
}

const packetsPerTurn = 200;

/** Our side of a comparison, besides the plans. */
interface ComparedNode {
  readonly view: NodeView;
  readonly links: NodeLinks;
  /** The mode of kube-proxy that our backend behaves like. */
  readonly mode: ProxyMode;
}

/**
 * Compares the outcome of the same packets by kube-proxy's rules for one family and by our plans. Returns the packets
 * with different outcomes. Without rules of kube-proxy, these are all packets that our plans serve.
 *
 * `FamilyComparer` calls it when a view or a rule has changed. Separate from `FamilyComparer`, which reads the rules
 * and the node: this function runs no program.
 *
 * It compares only the first packet of a connection, which decides for all of them. It does not compare how often each
 * endpoint is chosen. It also ignores a pod of another node that reaches itself by way of this one, which kube-proxy
 * masquerades and we do not (README of backend-iptables, "Where the form differs").
 *
 * *Cost:* about 0.1 ms for a packet; some five packets for each address and port. Ends early when `signal` aborts.
 */
export async function comparePackets(
  kubeProxyRules: KubeProxyRules | undefined,
  planned: PlannedNode,
  { view, links, mode }: ComparedNode,
  signal: AbortSignal,
): Promise<Comparison> {
  const kubeProxy = parseRules(kubeProxyRules);
  await nextTurn();
  const known = joinFrontends(frontendsOfRules(kubeProxy), frontendsOfPlans(planned));
  const frontends = joinFrontends(known, unknownPorts(planned));
  await nextTurn();
  const differences: Difference[] = [];
  const services = new Set<string>();
  let packets = 0;
  for (const probe of probesOf(frontends, { view, node: planned.node, links })) {
    if (signal.aborted) break;
    services.add(serviceOf(probe.frontend.servicePort));
    const theirs = describeOutcomes(() => trace(kubeProxy, links, probe.packet));
    const ours = describeOutcomes(() => outcomes(planned, probe.packet, mode));
    if (theirs.join("\n") !== ours.join("\n")) differences.push(toDifference(probe, planned.node.family, theirs, ours));
    if (++packets % packetsPerTurn === 0) await nextTurn();
  }
  return { differences, packets, services: services.size };
}

function parseRules(rules: KubeProxyRules | undefined): Ruleset {
  if (rules === undefined) return new Map();
  return rules.mode === "iptables" ? parseRuleset(rules.text) : parseNftRuleset(rules.text);
}

/** Returns the possible outcomes as text, sorted; the error as a single line if the packet cannot be traced. */
function describeOutcomes(find: () => readonly PacketOutcome[]): readonly string[] {
  try {
    return find().map(describeOutcome).sort();
  } catch (error) {
    return [`not understood: ${reasonOf(error)}`];
  }
}

/** Formats an outcome for reports. *Shape:* `10.1.1.11:8080 (masqueraded)`. */
function describeOutcome(outcome: PacketOutcome): string {
  switch (outcome.kind) {
    case "refused":
      return "refused";
    case "dropped":
      return "dropped";
    case "untouched":
      return outcome.isAccepted === true ? "let in" : "no rule";
    case "to": {
      const { address, port, isMasqueraded, affinitySeconds } = outcome;
      const notes = [
        ...(isMasqueraded ? ["masqueraded"] : []),
        ...(affinitySeconds === undefined ? [] : [`stays ${affinitySeconds} s`]),
      ];
      return [addressAndPort(address, port), ...(notes.length > 0 ? [`(${notes.join(", ")})`] : [])].join(" ");
    }
  }
}

function toDifference(
  { frontend, addressKind, sender, packet }: Probe,
  family: Family,
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
