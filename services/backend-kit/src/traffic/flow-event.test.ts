import { expect, test } from "vitest";
import { parseFlowEvent } from "./flow-event.ts";

const none = { packetsFromClient: 0, bytesFromClient: 0, packetsToClient: 0, bytesToClient: 0 };

// Lines of conntrack 1.4.7 and Linux 6.1.
test.each([
  {
    name: "the begin of a TCP connection",
    line: "    [NEW] tcp      6 120 SYN_SENT src=10.0.0.1 dst=10.96.0.1 sport=37720 dport=80 [UNREPLIED] src=10.1.0.1 dst=10.0.0.1 sport=8080 dport=37720",
    event: { kind: "began", protocol: "TCP", destination: "10.96.0.1", destinationPort: 80, ...none },
  },
  {
    name: "the end of a TCP connection, with its counts",
    line: "[DESTROY] tcp      6 119 TIME_WAIT src=10.0.0.1 dst=10.96.0.1 sport=37720 dport=80 packets=4 bytes=216 src=10.1.0.1 dst=10.0.0.1 sport=8080 dport=37720 packets=3 bytes=221 [ASSURED]",
    event: {
      ...{ kind: "ended", protocol: "TCP", destination: "10.96.0.1", destinationPort: 80 },
      ...{ packetsFromClient: 4, bytesFromClient: 216, packetsToClient: 3, bytesToClient: 221 },
    },
  },
  {
    name: "the end of a UDP flow over IPv6, without accounting",
    line: "[DESTROY] udp      17 src=fd00::1 dst=fd00:96::10 sport=5000 dport=53 src=fd00:1::2 dst=fd00::1 sport=5353 dport=5000",
    event: { kind: "ended", protocol: "UDP", destination: "fd00:96::10", destinationPort: 53, ...none },
  },
  {
    name: "a ping",
    line: "    [NEW] icmp     1 30 src=10.0.0.1 dst=10.96.0.1 type=8 code=0 id=1 [UNREPLIED] src=10.1.0.1 dst=10.0.0.1 type=0 code=0 id=1",
    event: undefined,
  },
  {
    name: "a message of the program",
    line: "conntrack v1.4.7 (conntrack-tools): 2 flow events have been shown.",
    event: undefined,
  },
])("$name is read", ({ line, event }) => {
  expect(parseFlowEvent(line)).toEqual(event);
});
