import type { ProxyProfile } from "@kpng/laboratory/scenario/deviations.ts";
import {
  type ConcretePacket,
  concretePackets,
  describeOutcome,
  describePacket,
  type Packet,
  type Sender,
  senderAddress,
} from "@kpng/laboratory/scenario/packet.ts";
import { boundAddress, bridgeName, type Family, gateways, hosts, podCIDRs } from "@kpng/laboratory/scenario/places.ts";
import type { Scenario } from "@kpng/laboratory/scenario/scenario.ts";
import { isIn } from "@kpng/model/address.ts";
import type { FirstPacket, PacketOutcome } from "@kpng/service-plan/testing/outcomes.ts";
import { parseRuleset } from "../packet-tracer/parse-ruleset.ts";
import { type TracedNode, trace } from "../packet-tracer/trace.ts";

/** Rules of n1 by family, in the format of iptables-save. */
type RulesText = Readonly<Record<Family, string>>;

/**
 * Traces a scenario's packets through the rules of a proxy, and returns a line for each packet with an unexpected
 * result.
 */
export function checkRules(rules: RulesText, scenario: Scenario, profile: ProxyProfile): readonly string[] {
  const rulesets = { v4: parseRuleset(rules.v4), v6: parseRuleset(rules.v6) };
  const packets = scenario.packets.flatMap((packet) => concretePackets(scenario, packet, profile));
  return packets.flatMap((concrete) => {
    const { packet, family, protocol, address } = concrete;
    const outcomes = trace(rulesets[family], nodes[family], firstPacket(concrete));
    if (isAsSaid(outcomes, concrete)) return [];
    const said = `${family} ${protocol} ${describePacket(packet)} (${address})`;
    return [`${said}: should be ${describeOutcome(packet, concrete.reason)}; found ${JSON.stringify(outcomes)}`];
  });
}

/** n1 as the laboratory creates it. */
const nodes: Readonly<Record<Family, TracedNode>> = { v4: tracedNode("v4"), v6: tracedNode("v6") };

function tracedNode(family: Family): TracedNode {
  const own = [hosts.n1, gateways.n1, boundAddress].map((pair) => pair[family]);
  const localCIDRs = [...own, family === "v4" ? "127.0.0.0/8" : "::1"];
  return {
    localCIDRs,
    outInterface: (address) => {
      if (localCIDRs.some((cidr) => isIn(address, cidr))) return "lo";
      return isIn(address, podCIDRs.n1[family]) ? bridgeName : "eth0";
    },
  };
}

function firstPacket({ packet, family, protocol, address, port }: ConcretePacket): FirstPacket {
  const { from } = packet;
  const isOwn = nodes[family].localCIDRs.some((cidr) => isIn(address, cidr));
  // A node uses its own address as source when it is the destination.
  const source = from.kind === "node" && isOwn ? address : senderAddress(from, family);
  return { protocol, source, destination: address, port, inInterface: inInterface(from, family) };
}

function inInterface(from: Sender, family: Family): string | undefined {
  if (from.kind === "node") return undefined;
  return isIn(senderAddress(from, family), podCIDRs.n1[family]) ? bridgeName : "eth0";
}

/** No proxy that has rules resets a connection. */
const outcomeKinds: Readonly<Record<string, PacketOutcome["kind"]>> = {
  refused: "refused",
  silent: "dropped",
  untouched: "untouched",
};

function isAsSaid(outcomes: readonly PacketOutcome[], { packet, family, targetPort }: ConcretePacket): boolean {
  if ("verdict" in packet) return outcomes.length === 1 && outcomes[0]?.kind === outcomeKinds[packet.verdict];
  const reached = outcomes.map((outcome) =>
    outcome.kind === "to" ? `${outcome.address} ${outcome.port}` : outcome.kind,
  );
  const expected = packet.goesTo.map((host) => `${hosts[host][family]} ${targetPort}`);
  if ([...new Set(reached)].sort().join() !== expected.sort().join()) return false;
  return outcomes.every((outcome) => outcome.kind === "to" && isSourceAsSaid(outcome.isMasqueraded, packet));
}

function isSourceAsSaid(isMasqueraded: boolean, packet: Extract<Packet, { goesTo: unknown }>): boolean {
  return packet.source === undefined || (packet.source === "masqueraded") === isMasqueraded;
}
