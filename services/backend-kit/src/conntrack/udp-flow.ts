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

/**
 * Parses a line of `conntrack -L`, or returns undefined for what is no UDP flow.
 *
 * *Shape:* `udp 17 29 src=A dst=B sport=1 dport=2 [UNREPLIED] src=C dst=D sport=3 dport=4 mark=0 use=1`: the first of each
 * name is the original direction, the second the reply. Other fields and their order do not matter; they differ between
 * kernels, while these have stayed the same for as long as the tool exists, and a table of a million entries takes a third
 * of the text that XML takes.
 */
export function parseFlow(line: string): UdpFlow | undefined {
  if (!/(?:^|\s)udp\s+17\s/.test(line)) return undefined;
  const values: Record<"src" | "dst" | "sport" | "dport", string[]> = { src: [], dst: [], sport: [], dport: [] };
  for (const [, name, value] of line.matchAll(/\b(src|dst|sport|dport)=(\S+)/g)) {
    values[name as keyof typeof values].push(value ?? "");
  }
  const destination = parseAddress(values.dst[0] ?? "");
  const reply = parseAddress(values.src[1] ?? "");
  const destinationPort = Number(values.dport[0]);
  const replySourcePort = Number(values.sport[1]);
  if (destination === undefined || reply === undefined || !(destinationPort > 0) || !(replySourcePort > 0)) {
    return undefined;
  }
  return {
    family: destination.family,
    destination: destination.address,
    destinationPort,
    replySource: reply.address,
    replySourcePort,
  };
}
