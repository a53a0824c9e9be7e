import type { PacketOutcome } from "@kpng/service-plan/outcomes.ts";
import { describe, expect, test } from "vitest";
import { parseRuleset } from "./parse-ruleset.ts";
import { type TracedNode, type TracedPacket, trace } from "./trace.ts";

const node: TracedNode = {
  localCIDRs: ["192.0.2.1", "127.0.0.0/8"],
  outInterface: (address) => (address.startsWith("10.1.") ? "cbr0" : "eth0"),
};
const packet: TracedPacket = {
  protocol: "tcp",
  source: "192.0.2.20",
  destination: "10.96.0.1",
  port: 80,
  inInterface: "eth0",
};
const to = (address: string, port = 8080, isMasqueraded = false) =>
  ({ kind: "to", address, port, isMasqueraded }) satisfies PacketOutcome;

interface Case {
  readonly name: string;
  readonly nat?: readonly string[];
  readonly filter?: readonly string[];
  readonly packet?: Partial<TracedPacket>;
  readonly outcomes: readonly PacketOutcome[];
}

const untouched: PacketOutcome = { kind: "untouched" };
const dnat = "-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.1.11:8080";

const cases: readonly Case[] = [
  { name: "no rule leaves a packet alone", outcomes: [untouched] },
  { name: "DNAT gives it another destination", nat: [dnat], outcomes: [to("10.1.1.11")] },
  { name: "another port does not match", nat: [dnat], packet: { port: 81 }, outcomes: [untouched] },
  { name: "another protocol does not match", nat: [dnat], packet: { protocol: "udp" }, outcomes: [untouched] },
  {
    name: "a chain's policy decides on packets that reach its end or return",
    filter: [":FORWARD DROP [0:0]", "-A FORWARD -p tcp -m tcp --dport 81 -j ACCEPT", "-A FORWARD -j RETURN"],
    outcomes: [{ kind: "dropped" }],
  },
  {
    name: "a rule comes before the policy",
    filter: [":FORWARD DROP [0:0]", "-A FORWARD -p tcp -m tcp --dport 80 -j ACCEPT"],
    outcomes: [{ kind: "untouched", isAccepted: true }],
  },
  {
    name: "table nat does not see a packet of no known connection",
    nat: [dnat],
    filter: ["-A FORWARD -m conntrack --ctstate INVALID -j DROP"],
    packet: { state: "INVALID" },
    outcomes: [{ kind: "dropped" }],
  },
  {
    name: "a new connection is not INVALID",
    filter: ["-A FORWARD -m conntrack --ctstate INVALID -j DROP"],
    outcomes: [untouched],
  },
  {
    name: "a packet of the node does not pass PREROUTING",
    nat: [dnat],
    packet: { inInterface: undefined },
    outcomes: [untouched],
  },
  {
    name: "a packet of the node passes OUTPUT",
    nat: [dnat.replace("PREROUTING", "OUTPUT")],
    packet: { inInterface: undefined },
    outcomes: [to("10.1.1.11")],
  },
  {
    name: "every outcome of chance is returned",
    nat: [
      ":SVC - [0:0]",
      "-A PREROUTING -j SVC",
      "-A SVC -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.1.1.11:8080",
      "-A SVC -j DNAT --to-destination 10.1.1.12:8080",
    ],
    outcomes: [to("10.1.1.11"), to("10.1.1.12")],
  },
  {
    name: "an affinity rule may match and may not",
    nat: [
      "-A PREROUTING -m recent --rcheck --seconds 600 --reap --name A --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.1.1.11:8080",
    ],
    outcomes: [{ ...to("10.1.1.11"), affinitySeconds: 600 }, untouched],
  },
  {
    name: "recording a client is not a condition",
    nat: [
      "-A PREROUTING -m recent --set --name A --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.1.1.11:8080",
    ],
    outcomes: [to("10.1.1.11")],
  },
  {
    name: "RETURN continues after the jump",
    nat: [
      ":SVC - [0:0]",
      "-A SVC -s 192.0.2.0/24 -j RETURN",
      "-A SVC -j DNAT --to-destination 10.1.1.11:1",
      "-A PREROUTING -j SVC",
      dnat,
    ],
    outcomes: [to("10.1.1.11")],
  },
  {
    name: "goto does not return",
    nat: [":SVC - [0:0]", "-A PREROUTING -g SVC", dnat],
    outcomes: [untouched],
  },
  {
    name: "a mark in nat is seen in POSTROUTING",
    nat: [
      ":M - [0:0]",
      "-A M -j MARK --set-xmark 0x4000/0x4000",
      '-A PREROUTING ! -s 10.1.0.0/16 -m comment --comment "off-cluster -j DROP" -j M',
      dnat,
      "-A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
      "-A POSTROUTING -j MARK --set-xmark 0x4000/0x0",
      "-A POSTROUTING -m comment --comment x -j MASQUERADE --random-fully",
    ],
    outcomes: [to("10.1.1.11", 8080, true)],
  },
  {
    name: "a packet delivered on the node does not pass POSTROUTING",
    nat: [
      "-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 192.0.2.1:8080",
      "-A POSTROUTING -j MASQUERADE",
    ],
    outcomes: [to("192.0.2.1")],
  },
  {
    name: "a forwarded packet can be refused",
    filter: ["-A FORWARD -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable"],
    outcomes: [{ kind: "refused" }],
  },
  {
    name: "INPUT is for the node's own addresses",
    filter: ["-A INPUT -m addrtype --dst-type LOCAL -j DROP", "-A FORWARD -j ACCEPT"],
    packet: { destination: "192.0.2.1" },
    outcomes: [{ kind: "dropped" }],
  },
  {
    name: "filter sees the new destination, and the original one through conntrack",
    nat: [dnat],
    filter: [
      "-A FORWARD -d 10.96.0.1/32 -j DROP",
      "-A FORWARD -d 10.1.1.11/32 -m conntrack --ctstate NEW --ctorigdst 10.96.0.1 --ctorigdstport 80 -j REJECT",
    ],
    outcomes: [{ kind: "refused" }],
  },
  {
    name: "interfaces match by name and by prefix",
    filter: [
      "-A FORWARD ! -i eth0 -j DROP",
      "-A FORWARD -o eth+ -m conntrack --ctstate INVALID -j DROP",
      "-A FORWARD -o eth+ -j REJECT",
    ],
    outcomes: [{ kind: "refused" }],
  },
  {
    name: "a packet of the node to itself passes INPUT too",
    filter: ["-A INPUT -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable"],
    packet: { inInterface: undefined, source: "192.0.2.1", destination: "192.0.2.1" },
    outcomes: [{ kind: "refused" }],
  },
  {
    name: "IPv6 destinations are in brackets",
    nat: ["-A PREROUTING -d fd00::1/128 -p tcp -m tcp --dport 80 -j DNAT --to-destination [fd00::2]:8080"],
    packet: { source: "fd00::3", destination: "fd00::1" },
    outcomes: [to("fd00::2")],
  },
  {
    name: "an inserted rule is met first",
    nat: [dnat, "-I PREROUTING 1 -p tcp -j DNAT --to-destination 10.1.1.99:1"],
    outcomes: [to("10.1.1.99", 1)],
  },
];

describe("the tracer", () => {
  for (const { name, nat = [], filter = [], packet: fields = {}, outcomes } of cases) {
    test(name, () => {
      const text = ["*nat", ...nat, "COMMIT", "*filter", ...filter, "COMMIT", ""].join("\n");
      expect(trace(parseRuleset(text), node, { ...packet, ...fields })).toEqual(outcomes);
    });
  }

  test("a rule that is not understood affects only packets that reach it", () => {
    const rules = parseRuleset(`*nat\n-A PREROUTING -p udp -m set --match-set A dst -j DROP\n${dnat}\nCOMMIT`);
    expect(trace(rules, node, packet)).toEqual([to("10.1.1.11")]);
    expect(() => trace(rules, node, { ...packet, protocol: "udp" })).toThrow(/--match-set/);
  });

  test("finds the rules of a long chain in their order", () => {
    const others = Array.from(
      { length: 100 },
      (_, at) => `-A PREROUTING -d 10.96.1.${at}/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.9.9.9:1`,
    );
    const node30080 = "-A PREROUTING -p tcp -m tcp --dport 30080 -j DNAT --to-destination 10.1.1.12:1";
    const returning = "-A PREROUTING -s 192.0.2.9/32 -j RETURN";
    const rules = parseRuleset(["*nat", ...others, returning, dnat, node30080, "COMMIT"].join("\n"));
    expect(trace(rules, node, packet)).toEqual([to("10.1.1.11")]);
    expect(trace(rules, node, { ...packet, source: "192.0.2.9" })).toEqual([untouched]);
    expect(trace(rules, node, { ...packet, destination: "10.96.1.7" })).toEqual([to("10.9.9.9", 1)]);
    expect(trace(rules, node, { ...packet, destination: "192.0.2.1", port: 30_080 })).toEqual([to("10.1.1.12", 1)]);
  });

  test("a packet that a rule accepts differs from one that no rule matches", () => {
    const rules = parseRuleset("*filter\n-A INPUT -p tcp -m tcp --dport 30000 -j ACCEPT\nCOMMIT");
    const asked = { ...packet, destination: "192.0.2.1", port: 30_000 };
    expect(trace(rules, node, asked)).toEqual([{ kind: "untouched", isAccepted: true }]);
    expect(trace(rules, node, { ...asked, port: 30_001 })).toEqual([untouched]);
  });

  const refused: readonly { readonly rule: string; readonly message: RegExp }[] = [
    { rule: "-A PREROUTING -m set --match-set A dst -j DROP", message: /--match-set/ },
    { rule: "-A PREROUTING -j NOWHERE", message: /no chain NOWHERE/ },
    { rule: "-A PREROUTING -j PREROUTING", message: /loop/ },
    { rule: "-D PREROUTING 1", message: /-D PREROUTING/ },
  ];
  for (const { rule, message } of refused) {
    test(`does not guess: ${rule}`, () => {
      expect(() => trace(parseRuleset(`*nat\n${rule}\nCOMMIT`), node, packet)).toThrow(message);
    });
  }
});
