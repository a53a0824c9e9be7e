import { expect, test } from "vitest";
import { parseNftRuleset } from "./parse-nft-ruleset.ts";
import { trace } from "./trace.ts";

const node = { localCIDRs: ["127.0.0.0/8", "192.168.0.1"], outInterface: () => "eth0" };
const payload = (protocol: string, field: string) => ({ payload: { protocol, field } });
const frontend = { concat: [payload("ip", "daddr"), { meta: { key: "l4proto" } }, payload("th", "dport")] };
const mark = { meta: { key: "mark" } };
const match = (left: object, right: unknown, op = "==") => ({ match: { op, left, right } });
const toMark = { mangle: { key: mark, value: { "|": [mark, 0x4000] } } };
const pods = { prefix: { addr: "10.1.0.0", len: 16 } };
const numgen = (mod: number) => ({ numgen: { mode: "random", mod, offset: 0 } });
const endpoint = (host: number) => ({ concat: [`10.1.0.${host}`, 8080] });

/** Output of `nft -j list table ip kube-proxy` for a few Services, shortened; the form is that of the real one. */
const table = [
  { metainfo: { version: "1.0.6" } },
  { table: { family: "ip", name: "kube-proxy" } },
  { set: { name: "cluster-ips", elem: ["10.96.0.1", "10.96.0.2"] } },
  { set: { name: "nodeport-ips", elem: ["192.168.0.1"] } },
  { set: { name: "affinity-1", flags: ["timeout"], timeout: 600 } },
  {
    map: {
      name: "service-ips",
      elem: [
        [{ concat: ["10.96.0.1", "tcp", 80] }, { goto: { target: "service-1" } }],
        [{ elem: { val: { concat: ["10.96.0.2", "tcp", 80] }, comment: "ns/b" } }, { goto: { target: "service-2" } }],
      ],
    },
  },
  { map: { name: "service-nodeports", elem: [[{ concat: ["tcp", 30080] }, { goto: { target: "service-1" } }]] } },
  { map: { name: "firewall-ips", elem: [[{ concat: ["10.96.0.1", "tcp", 80] }, { goto: { target: "firewall-1" } }]] } },
  ...["services", "service-1", "service-2", "endpoint-1", "firewall-1", "check"].map((name) => ({ chain: { name } })),
  ...[
    { name: "filter-pre", hook: "prerouting", prio: -110 },
    { name: "nat-pre", hook: "prerouting", prio: -100 },
    { name: "nat-post", hook: "postrouting", prio: 100 },
    { name: "filter-forward", hook: "forward", prio: 0 },
  ].map((chain) => ({ chain: { ...chain, policy: "accept" } })),
  ...[
    ["nat-pre", { jump: { target: "services" } }],
    ["filter-pre", { vmap: { key: frontend, data: "@firewall-ips" } }],
    [
      "firewall-1",
      match(payload("ip", "saddr"), { set: [pods, { prefix: { addr: "192.0.2.0", len: 24 } }] }, "!="),
      drop(),
    ],
    ["services", match(payload("ip", "daddr"), "@cluster-ips"), match(payload("ip", "saddr"), pods, "!="), toMark],
    ["services", { counter: null }, { vmap: { key: frontend, data: "@service-ips" } }],
    [
      "services",
      match(payload("ip", "daddr"), "@nodeport-ips"),
      { vmap: { key: { concat: frontend.concat.slice(1) }, data: "@service-nodeports" } },
    ],
    [
      "service-1",
      match({ meta: { key: "l4proto" } }, "tcp"),
      {
        dnat: {
          family: "ip",
          addr: {
            map: {
              key: numgen(2),
              data: {
                set: [
                  [0, endpoint(1)],
                  [1, endpoint(2)],
                ],
              },
            },
          },
        },
      },
    ],
    ["service-2", match(payload("ip", "saddr"), "@affinity-1"), { goto: { target: "endpoint-1" } }],
    ["service-2", { vmap: { key: numgen(1), data: { set: [[0, { goto: { target: "endpoint-1" } }]] } } }],
    ["endpoint-1", { set: { op: "update", elem: payload("ip", "saddr"), set: "@affinity-1" } }],
    ["endpoint-1", { dnat: { addr: "10.1.0.3", port: 8080 } }],
    ["nat-post", match({ "&": [mark, 0x4000] }, 0, "!="), toMark, { masquerade: { flags: "fully-random" } }],
    ["filter-forward", match({ ct: { key: "state" } }, "new", "in"), { jump: { target: "check" } }],
    ["check", match(payload("ip", "daddr"), "@cluster-ips"), { reject: { type: "icmp" } }],
  ].map(([chain, ...expr]) => ({ rule: { chain, expr } })),
];

function drop() {
  return { drop: null };
}

function outcomesOf(packet: { readonly source: string; readonly destination: string; readonly port: number }) {
  const ruleset = parseNftRuleset(JSON.stringify({ nftables: table }));
  return trace(ruleset, node, { protocol: "tcp", inInterface: "eth0", ...packet });
}

const to = (host: number, isMasqueraded: boolean) => ({
  ...{ kind: "to", address: `10.1.0.${host}`, port: 8080, isMasqueraded },
});

test.each([
  {
    rule: "a random choice may end at each endpoint, and sources outside a negated range are masqueraded",
    packet: { source: "192.0.2.1", destination: "10.96.0.1", port: 80 },
    outcomes: [to(1, true), to(2, true)],
  },
  {
    rule: "a chain before DNAT drops sources in none of several ranges",
    packet: { source: "198.51.100.1", destination: "10.96.0.1", port: 80 },
    outcomes: [{ kind: "dropped" }],
  },
  {
    rule: "a set that packets add to is affinity",
    packet: { source: "10.1.0.9", destination: "10.96.0.2", port: 80 },
    outcomes: [{ ...to(3, false), affinitySeconds: 600 }, to(3, false)],
  },
  {
    rule: "a map without the address is looked up for each address of the rule's own set",
    packet: { source: "10.1.0.9", destination: "192.168.0.1", port: 30_080 },
    outcomes: [to(1, false), to(2, false)],
  },
  {
    rule: "an element that no map has leads to the next rule, and to the chains of other hooks",
    packet: { source: "10.1.0.9", destination: "10.96.0.2", port: 81 },
    outcomes: [{ kind: "refused" }],
  },
])("$rule", ({ packet, outcomes }) => {
  expect(outcomesOf(packet)).toEqual(outcomes);
});

test("a packet that reaches a statement that is not known cannot be traced, and others can", () => {
  const strange = { rule: { chain: "services", expr: [match(payload("ip", "daddr"), "10.9.9.9"), { quota: {} }] } };
  const ruleset = parseNftRuleset(JSON.stringify({ nftables: [...table, strange] }));
  const packet = { protocol: "tcp", inInterface: "eth0", source: "10.1.0.9", port: 80 };
  expect(() => trace(ruleset, node, { ...packet, destination: "10.9.9.9" })).toThrow("quota");
  expect(trace(ruleset, node, { ...packet, destination: "10.9.9.8" })).toEqual([{ kind: "untouched" }]);
});

test("a base chain with policy drop is refused: what it lets pass is not in this table alone", () => {
  const chain = { name: "strict", hook: "forward", prio: 0, policy: "drop" };
  expect(() => parseNftRuleset(JSON.stringify({ nftables: [{ chain }] }))).toThrow("not known to the tracer");
});
