import { type Family, parseAddress, withoutDottedIPv6 } from "@kpng/model/address.ts";

/** Destination of the datagrams of a UDP entry in the conntrack table. */
export interface UdpFlow {
  readonly family: Family;
  /** Address to which the client sends, before NAT. */
  readonly destination: string;
  readonly destinationPort: number;
  /** Address that answers: an endpoint after DNAT, otherwise the destination itself. */
  readonly replySource: string;
  readonly replySourcePort: number;
}

const direction = String.raw`\bsrc=(\S+) dst=(\S+) sport=(\d+) dport=(\d+)\b`;
const flowLine = new RegExp(String.raw`(?:^|\s)udp\s+17\s.*?${direction}.*?${direction}`);

/**
 * Parses a line that `conntrack` prints; undefined if it is not a UDP flow.
 *
 * *Shape:* `udp 17 29 src=A dst=B sport=1 dport=2 [UNREPLIED] src=C dst=D sport=3 dport=4 mark=0 use=1`: the original
 * direction, then the reply. The text around them differs between kernels; these fields have not changed since the
 * first version of the tool. The tool's XML output would be three times as long.
 */
export function parseFlow(line: string): UdpFlow | undefined {
  const match = flowLine.exec(line);
  if (match === null) return undefined;
  const destination = parseAddress(withoutDottedIPv6(match[2] ?? ""));
  const reply = parseAddress(withoutDottedIPv6(match[5] ?? ""));
  if (destination === undefined || reply === undefined) return undefined;
  return {
    family: destination.family,
    destination: destination.address,
    destinationPort: Number(match[4]),
    replySource: reply.address,
    replySourcePort: Number(match[7]),
  };
}
