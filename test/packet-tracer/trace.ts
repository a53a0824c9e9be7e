import { isIn } from "@kpng/model/address.ts";
import type { FirstPacket, PacketOutcome } from "@kpng/service-plan/testing/outcomes.ts";
import type { Ruleset } from "./parse-ruleset.ts";
import { type Branch, type Traced, walk } from "./walk.ts";

/** The properties of a node that a trace depends on besides the rules. */
export interface TracedNode {
  /** CIDRs of the node's own addresses, loopback included. */
  readonly localCIDRs: readonly string[];
  /** The interface that a packet to this address leaves by. */
  outInterface(address: string): string;
}

/**
 * Returns every possible outcome of the first packet of a connection, each once: tests compare our rules and kube-proxy's
 * by it.
 *
 * The packet passes the kernel's hooks: nat PREROUTING or OUTPUT, then by its new destination filter INPUT or FORWARD
 * (or OUTPUT), then nat POSTROUTING if it leaves the node. A packet of the node to itself passes OUTPUT, POSTROUTING
 * and INPUT.
 *
 * Errors: a chain that does not exist, a loop, a rule on the path that the tracer does not understand.
 */
export function trace(ruleset: Ruleset, node: TracedNode, packet: FirstPacket): readonly PacketOutcome[] {
  const isLocal = (address: string): boolean => node.localCIDRs.some((cidr) => isIn(address, cidr));
  const start: Traced = {
    ...packet,
    outInterface: undefined,
    mark: 0,
    original: { address: packet.destination, port: packet.port },
    isTranslated: false,
    isMasqueraded: false,
    isAccepted: false,
    affinitySeconds: undefined,
    isLocal,
  };
  const hook = (table: string, chain: string) => (branch: Branch) =>
    branch.verdict === "accept" ? walk(ruleset, table, chain, branch.packet) : [branch];
  const leave = (branch: Branch): Branch => ({
    ...branch,
    packet: { ...branch.packet, outInterface: node.outInterface(branch.packet.destination) },
  });
  let branches: readonly Branch[] = [{ packet: start, verdict: "accept" }];
  if (packet.inInterface === undefined) {
    branches = branches
      .flatMap(hook("nat", "OUTPUT"))
      .map(leave)
      .flatMap(hook("filter", "OUTPUT"))
      .flatMap(hook("nat", "POSTROUTING"))
      .flatMap((branch) =>
        isLocal(branch.packet.destination)
          ? hook(
              "filter",
              "INPUT",
            )({ ...branch, packet: { ...branch.packet, inInterface: "lo", outInterface: undefined } })
          : [branch],
      );
  } else {
    branches = branches.flatMap(hook("nat", "PREROUTING")).flatMap((branch) => {
      if (branch.verdict !== "accept") return [branch];
      if (isLocal(branch.packet.destination)) return hook("filter", "INPUT")(branch);
      return hook("filter", "FORWARD")(leave(branch)).flatMap(hook("nat", "POSTROUTING"));
    });
  }
  const outcomes = branches.map(toOutcome);
  return [...new Map(outcomes.map((outcome) => [JSON.stringify(outcome), outcome])).values()];
}

function toOutcome({ verdict, packet }: Branch): PacketOutcome {
  if (verdict === "reject") return { kind: "refused" };
  if (verdict === "drop") return { kind: "dropped" };
  if (!packet.isTranslated) return packet.isAccepted ? { kind: "untouched", isAccepted: true } : { kind: "untouched" };
  const { destination: address, port, isMasqueraded, affinitySeconds } = packet;
  const outcome = { kind: "to", address, port, isMasqueraded } as const;
  return affinitySeconds === undefined ? outcome : { ...outcome, affinitySeconds };
}
