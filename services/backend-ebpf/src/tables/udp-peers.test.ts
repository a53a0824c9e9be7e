import { expect, test } from "vitest";
import { memberKey } from "../layout/keys.ts";
import { endpointOfMember, endpointText, parseConnectedPeers } from "./udp-peers.ts";

const v4 = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
  309: 0A01010A:C350 0B01010A:1F90 01 00000000:00000000 00:00000000 00000000     0        0 1 2 0 0
  310: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 0
`;
const v6 = `  sl  local_address                         remote_address                        st tx_queue
  309: 000001FD000000000000000001000000:C350 0000000000000000FFFF00000B01010A:1F90 01 00000000:00000000
  311: 000001FD000000000000000001000000:C351 010000FD000000000000000007000000:0035 01 00000000:00000000
`;

test("only connected sockets have a peer, and IPv4 addresses of IPv6 sockets are those of the endpoint", () => {
  const member = endpointText(memberKey(7n, { address: "10.1.1.11", port: 8080 }));
  expect(parseConnectedPeers(v4)).toEqual([member]);
  const [mapped, other = ""] = parseConnectedPeers(v6);
  expect(mapped).toBe(member);
  expect(endpointOfMember(other)).toEqual({ address: "fd00:1::7", port: 53 });
});
