import { isIn } from "@kpng/model/cidr.ts";
import type { Ruleset } from "./rule.ts";
import { type Branch, type Traced, walk } from "./walk.ts";

/** A packet as it arrives at the node or leaves a process on it. */
export interface TracedPacket {
  readonly protocol: string;
  readonly source: string;
  readonly destination: string;
  readonly port: number;
  /** The link that it comes in by; undefined if the node itself sends it. */
  readonly inInterface: string | undefined;
  /**
   * What the kernel takes it for: the first of a connection, which is the default, or INVALID, of no connection that it
   * knows, which no rule of nat gets to see.
   */
  readonly state?: "NEW" | "INVALID" | undefined;
}

/** What the tracer must know about a node besides its rules. */
export interface TracedNode {
  /** CIDRs of the node's own addresses, loopback included. */
  readonly localCIDRs: readonly string[];
  /** The link that a packet to this address leaves by. */
  outInterface(address: string): string;
}

/** One thing that may become of a packet. */
export type TraceOutcome =
  | {
      readonly kind: "to";
      readonly address: string;
      readonly port: number;
      readonly isMasqueraded: boolean;
      /** For how long the client has stayed there, if it goes there because it was remembered. *Unit:* seconds. */
      readonly affinitySeconds?: number;
    }
  | { readonly kind: "refused" }
  | { readonly kind: "silent" }
  /** No rule gave it another destination, none stopped it; `isLetIn` if one said that it may pass. */
  | { readonly kind: "untouched"; readonly isLetIn?: true };

/**
 * Returns everything that may become of a packet, each once.
 *
 * It follows the kernel's hooks: nat PREROUTING or OUTPUT, then by the new destination filter INPUT or FORWARD (or
 * OUTPUT), then nat POSTROUTING for what leaves. What the node sends to itself passes OUTPUT, POSTROUTING and INPUT.
 *
 * Errors: a chain that does not exist, a loop, a rule on its way that the tracer does not understand.
 */
export function trace(ruleset: Ruleset, node: TracedNode, packet: TracedPacket): readonly TraceOutcome[] {
  const isLocal = (address: string): boolean => node.localCIDRs.some((cidr) => isIn(address, cidr));
  const start: Traced = {
    ...packet,
    outInterface: undefined,
    state: packet.state ?? "NEW",
    mark: 0,
    original: { address: packet.destination, port: packet.port },
    isTranslated: false,
    isMasqueraded: false,
    isAccepted: false,
    affinitySeconds: undefined,
    isLocal,
  };
  const hook = (table: string, chain: string) => (branch: Branch) =>
    branch.verdict !== "accept" || (table === "nat" && branch.packet.state === "INVALID")
      ? [branch]
      : walk(ruleset, table, chain, branch.packet);
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

function toOutcome({ verdict, packet }: Branch): TraceOutcome {
  if (verdict === "reject") return { kind: "refused" };
  if (verdict === "drop") return { kind: "silent" };
  if (!packet.isTranslated) return packet.isAccepted ? { kind: "untouched", isLetIn: true } : { kind: "untouched" };
  const { destination: address, port, isMasqueraded, affinitySeconds } = packet;
  const outcome = { kind: "to", address, port, isMasqueraded } as const;
  return affinitySeconds === undefined ? outcome : { ...outcome, affinitySeconds };
}
