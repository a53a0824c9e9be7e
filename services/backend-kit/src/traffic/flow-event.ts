import { parseAddress, withoutDottedIPv6 } from "@kpng/model/address.ts";

/** A flow that began, or ended with these counts, as conntrack reports it. */
export interface FlowEvent {
  readonly kind: "began" | "ended";
  /** "TCP", "UDP" or "SCTP". */
  readonly protocol: string;
  /** Address and port to which the client sends, before NAT. */
  readonly destination: string;
  readonly destinationPort: number;
  /** 0 for a flow that began, and without accounting in the kernel. */
  readonly packetsFromClient: number;
  readonly bytesFromClient: number;
  readonly packetsToClient: number;
  readonly bytesToClient: number;
}

const direction = String.raw`src=\S+ dst=(\S+) sport=\d+ dport=(\d+)(?: packets=(\d+) bytes=(\d+))?`;
const eventLine = new RegExp(String.raw`\[(NEW|DESTROY)\] (tcp|udp|sctp) .*?${direction}.*?${direction}`);

/**
 * Parses a line of `conntrack -E`; undefined if it is not the begin or end of a flow with ports. `FlowWatch` calls it
 * for each line. Separate from it, because it is pure and runs no program.
 *
 * *Shape:* `[DESTROY] tcp 6 src=A dst=B sport=1 dport=2 packets=5 bytes=300 src=C dst=A sport=3 dport=1 packets=4
 * bytes=200 [ASSURED]`: the original direction, then the reply.
 */
export function parseFlowEvent(line: string): FlowEvent | undefined {
  const match = eventLine.exec(line.replace(/\s+/g, " "));
  if (match === null) return undefined;
  const destination = parseAddress(withoutDottedIPv6(match[3] ?? ""));
  if (destination === undefined) return undefined;
  const count = (index: number): number => Number(match[index] ?? 0);
  return {
    kind: match[1] === "NEW" ? "began" : "ended",
    protocol: (match[2] ?? "").toUpperCase(),
    destination: destination.address,
    destinationPort: count(4),
    packetsFromClient: count(5),
    bytesFromClient: count(6),
    packetsToClient: count(9),
    bytesToClient: count(10),
  };
}
