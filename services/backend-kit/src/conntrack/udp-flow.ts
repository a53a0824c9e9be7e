import { type Family, parseAddress } from "@kpng/model/address.ts";

/** What of a conntrack entry says where its datagrams go. */
export interface UdpFlow {
  readonly family: Family;
  /** Where the client sends, before NAT. */
  readonly destination: string;
  readonly destinationPort: number;
  /** Who answers: an endpoint after DNAT, else the destination itself. */
  readonly replySource: string;
  readonly replySourcePort: number;
}

const direction = String.raw`\bsrc=(\S+) dst=(\S+) sport=(\d+) dport=(\d+)\b`;
const flowLine = new RegExp(String.raw`(?:^|\s)udp\s+17\s.*?${direction}.*?${direction}`);

/**
 * Parses a line of `conntrack -L`, or returns undefined for what is no UDP flow.
 *
 * *Shape:* `udp 17 29 src=A dst=B sport=1 dport=2 [UNREPLIED] src=C dst=D sport=3 dport=4 mark=0 use=1`: the original
 * direction, then the reply. What stands before, between and behind them differs between kernels; these have stayed the
 * same for as long as the tool exists, and a table of a million entries takes a third of the text that XML takes.
 */
export function parseFlow(line: string): UdpFlow | undefined {
  const match = flowLine.exec(line);
  if (match === null) return undefined;
  const destination = parseAddress(match[2] ?? "");
  const reply = parseAddress(match[5] ?? "");
  if (destination === undefined || reply === undefined) return undefined;
  return {
    family: destination.family,
    destination: destination.address,
    destinationPort: Number(match[4]),
    replySource: reply.address,
    replySourcePort: Number(match[7]),
  };
}
