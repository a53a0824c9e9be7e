import type { ViewEndpoint } from "@kpng/model/node-view.ts";
import { endpoint, port, type ServiceParts, service } from "@kpng/model/testing/views.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { describe, expect, test } from "vitest";
import { rulesOf } from "../testing/rules.ts";

const here = (address: string): ViewEndpoint =>
  endpoint(address, { ports: [{ name: "", port: 8080 }], isOnNode: true, use: { cluster: true, local: true } });
const away = (address: string): ViewEndpoint => endpoint(address, { ports: [{ name: "", port: 8080 }] });
const elsewhere = [{ v4: true, v6: true }];
const nowhere = [{ v4: false, v6: false }];
const ip = "10.96.0.10";
const bucket = `nat IP-10.96.0.0: -d ${ip}/32 tcp --dport 80`;
const off = (chain: string): string => `${chain}: ! -s 10.0.0.0/8 -d ${ip}/32 tcp --dport 80 -j MARK-MASQ`;
const to = (address: string): string => `-j DNAT --to-destination ${address}:8080`;

interface Row {
  readonly name: string;
  readonly parts: ServiceParts;
  readonly node?: Partial<NodePlan>;
  readonly rules: readonly string[];
}

const clusterIP: readonly Row[] = [
  {
    name: "each of three endpoints gets a third, in the order of their addresses",
    parts: { endpoints: [away("10.0.1.9"), away("10.0.1.10"), away("10.0.1.1")] },
    rules: [
      `${bucket} -j SVC`,
      off("SVC"),
      `SVC: -p tcp -m statistic --mode random --probability 0.33333333349 ${to("10.0.1.10")}`,
      `SVC: -p tcp -m statistic --mode random --probability 0.50000000000 ${to("10.0.1.1")}`,
      `SVC: -p tcp ${to("10.0.1.9")}`,
    ],
  },
  {
    name: "a port of a protocol that a newer watcher knows has no rule",
    parts: {
      ports: [],
      unknownPorts: [{ name: "", protocol: 4, port: 80, nodePort: 30_080, targetPort: 8080 }],
      endpoints: [away("10.0.1.1")],
    },
    rules: [],
  },
  {
    name: "an endpoint's port of such a protocol answers for no other",
    parts: {
      endpoints: [away("10.0.1.1"), endpoint("10.0.1.2", { ports: [{ name: "", port: 8080, protocol: 4 }] })],
    },
    rules: [`${bucket} -j SVC`, off("SVC"), `SVC: -p tcp ${to("10.0.1.1")}`],
  },
  {
    name: "without a usable endpoint anywhere it refuses",
    parts: { portHasEndpoints: nowhere },
    rules: [`filter SERVICES: -d ${ip}/32 tcp --dport 80 -j REJECT`],
  },
  {
    name: "policy Local without one here drops if there is one elsewhere",
    parts: { internalTrafficPolicy: "Local", portHasEndpoints: elsewhere },
    rules: [`filter SERVICES: -d ${ip}/32 tcp --dport 80 -j DROP`],
  },
  {
    name: "policy Local keeps to endpoints on the node, and one that reaches itself is masqueraded",
    parts: { internalTrafficPolicy: "Local", endpoints: [away("10.0.1.1"), here("10.0.0.1")] },
    rules: [
      `${bucket} -j SVL`,
      "nat HP-10.0.0.0: -s 10.0.0.1/32 -d 10.0.0.1/32 -j MASQUERADE --random-fully",
      off("SVL"),
      `SVL: -p tcp ${to("10.0.0.1")}`,
    ],
  },
  {
    name: "masquerade-all marks every client",
    parts: { endpoints: [away("10.0.1.1")] },
    node: { isMasqueradeAll: true },
    rules: [`${bucket} -j SVC`, `SVC: -d ${ip}/32 tcp --dport 80 -j MARK-MASQ`, `SVC: -p tcp ${to("10.0.1.1")}`],
  },
  {
    name: "pods can be told by their interface",
    parts: { endpoints: [away("10.0.1.1")] },
    node: { podTraffic: { kind: "interfacePrefix", prefix: "veth" } },
    rules: [
      `${bucket} -j SVC`,
      `SVC: -d ${ip}/32 ! -i veth+ tcp --dport 80 -j MARK-MASQ`,
      `SVC: -p tcp ${to("10.0.1.1")}`,
    ],
  },
  {
    name: "where pods cannot be recognized, no packet is marked",
    parts: { endpoints: [away("10.0.1.1")] },
    node: { podTraffic: undefined },
    rules: [`${bucket} -j SVC`, `SVC: -p tcp ${to("10.0.1.1")}`],
  },
  {
    name: "affinity is looked up for all endpoints before the dice are thrown, and set either way",
    parts: { clientIPAffinitySeconds: 60, endpoints: [away("10.0.1.1"), away("10.0.1.2")] },
    node: { podTraffic: undefined },
    rules: [
      `${bucket} -j SVC`,
      ...["10.0.1.1", "10.0.1.2"].map(
        (to_) => `SVC: -p tcp -m recent --rcheck --seconds 60 --reap --name SEP -m recent --set --name SEP ${to(to_)}`,
      ),
      `SVC: -p tcp -m statistic --mode random --probability 0.50000000000 -m recent --set --name SEP ${to("10.0.1.1")}`,
      `SVC: -p tcp -m recent --set --name SEP ${to("10.0.1.2")}`,
    ],
  },
  {
    name: "an endpoint in neither set gets nothing",
    parts: {
      endpoints: [endpoint("10.0.0.1", { isOnNode: true, use: { cluster: false, local: false } })],
      portHasEndpoints: nowhere,
    },
    rules: [`filter SERVICES: -d ${ip}/32 tcp --dport 80 -j REJECT`],
  },
  { name: "a headless Service has no rules", parts: { isHeadless: true, ips: [] }, rules: [] },
  { name: "an ExternalName has no rules", parts: { type: "ExternalName", ips: [] }, rules: [] },
  { name: "a Service of the other family has no rules", parts: { ips: ["fd00::1"], endpoints: [] }, rules: [] },
];

const fromNode = "-m addrtype --src-type LOCAL";
const shortCircuit = ["EXT: -s 10.0.0.0/8 -j SVC", `EXT: ${fromNode} -j MARK-MASQ`, `EXT: ${fromNode} -j SVC`];
const balancer = { type: "LoadBalancer" as const, loadBalancerIPs: ["5.6.7.8"] };
const svc = [off("SVC"), `SVC: -p tcp ${to("10.0.1.1")}`];

const external: readonly Row[] = [
  {
    name: "policy Cluster: node port, external IP and load-balancer IP masquerade",
    parts: {
      ...balancer,
      externalIPs: ["9.9.9.9"],
      ports: [port(80, { nodePort: 30_081 })],
      endpoints: [away("10.0.1.1")],
    },
    rules: [
      `${bucket} -j SVC`,
      "nat IP-9.9.9.0: -d 9.9.9.9/32 tcp --dport 80 -j EXT",
      "nat IP-5.6.7.0: -d 5.6.7.8/32 tcp --dport 80 -j EXT",
      "nat NP-TCP-30080: tcp --dport 30081 -j EXT",
      ...svc,
      "EXT: -j MARK-MASQ",
      "EXT: -j SVC",
    ],
  },
  {
    name: "policy Local, endpoints elsewhere: pods and the node use those, others are dropped",
    parts: {
      ...balancer,
      externalTrafficPolicy: "Local",
      ports: [port(80, { nodePort: 30_081 })],
      endpoints: [away("10.0.1.1")],
    },
    rules: [
      `${bucket} -j SVC`,
      "nat IP-5.6.7.0: -d 5.6.7.8/32 tcp --dport 80 -j EXT",
      "filter EXTERNAL-SERVICES: -d 5.6.7.8/32 tcp --dport 80 -j DROP",
      "nat NP-TCP-30080: tcp --dport 30081 -j EXT",
      "filter EXTERNAL-SERVICES: -p tcp -m addrtype --dst-type LOCAL -m tcp --dport 30081 -j DROP",
      // It may come here by the node port and be given itself.
      "nat HP-10.0.1.0: -s 10.0.1.1/32 -d 10.0.1.1/32 -j MASQUERADE --random-fully",
      ...svc,
      ...shortCircuit,
    ],
  },
  {
    name: "policy Local, one here: the client's address is kept",
    parts: { ...balancer, externalTrafficPolicy: "Local", endpoints: [here("10.0.1.1")] },
    rules: [
      `${bucket} -j SVC`,
      "nat IP-5.6.7.0: -d 5.6.7.8/32 tcp --dport 80 -j EXT",
      "nat HP-10.0.1.0: -s 10.0.1.1/32 -d 10.0.1.1/32 -j MASQUERADE --random-fully",
      ...svc,
      `SVL: -p tcp ${to("10.0.1.1")}`,
      ...shortCircuit,
      "EXT: -j SVL",
    ],
  },
  {
    name: "without endpoints every address refuses",
    parts: {
      ...balancer,
      externalIPs: ["9.9.9.9"],
      ports: [port(80, { nodePort: 30_081 })],
      portHasEndpoints: nowhere,
    },
    rules: [
      `filter SERVICES: -d ${ip}/32 tcp --dport 80 -j REJECT`,
      "filter EXTERNAL-SERVICES: -d 9.9.9.9/32 tcp --dport 80 -j REJECT",
      "filter EXTERNAL-SERVICES: -d 5.6.7.8/32 tcp --dport 80 -j REJECT",
      "filter EXTERNAL-SERVICES: -p tcp -m addrtype --dst-type LOCAL -m tcp --dport 30081 -j REJECT",
    ],
  },
  {
    name: "source ranges hold for load-balancer IPs; the node's own range lets in what comes from that IP",
    parts: {
      ...balancer,
      ipFilters: [{ sourceRanges: ["203.0.113.0/25", " 192.168.0.0/24", "fd00::/8"] }],
      endpoints: [away("10.0.1.1")],
    },
    rules: [
      `${bucket} -j SVC`,
      "nat IP-5.6.7.0: -d 5.6.7.8/32 tcp --dport 80 -j FW",
      "filter PROXY-FIREWALL: -d 5.6.7.8/32 tcp --dport 80 -j DROP",
      ...svc,
      "EXT: -j MARK-MASQ",
      "EXT: -j SVC",
      "FW: -s 203.0.113.0/25 -j EXT",
      "FW: -s 192.168.0.0/24 -j EXT",
      "FW: -s 5.6.7.8/32 -j EXT",
      "FW:",
    ],
  },
  {
    name: "a range of all addresses opens the load balancer, whatever else is in the list",
    parts: {
      ...balancer,
      ipFilters: [{ sourceRanges: ["203.0.113.0/25", "0.0.0.0/0"] }],
      endpoints: [away("10.0.1.1")],
    },
    rules: [
      `${bucket} -j SVC`,
      "nat IP-5.6.7.0: -d 5.6.7.8/32 tcp --dport 80 -j EXT",
      ...svc,
      "EXT: -j MARK-MASQ",
      "EXT: -j SVC",
    ],
  },
  {
    name: "a health-check node port is let in, with and without endpoints",
    parts: { ...balancer, healthCheckNodePort: 30_100, externalTrafficPolicy: "Local", portHasEndpoints: nowhere },
    rules: [
      `filter SERVICES: -d ${ip}/32 tcp --dport 80 -j REJECT`,
      "filter EXTERNAL-SERVICES: -d 5.6.7.8/32 tcp --dport 80 -j REJECT",
      "filter NODEPORTS: tcp --dport 30100 -j ACCEPT",
    ],
  },
  {
    name: "a Service of the other family alone has its health checks there",
    parts: { ...balancer, ips: ["fd00:96::a"], healthCheckNodePort: 30_100, portHasEndpoints: nowhere },
    rules: [],
  },
];

describe("cluster IPs", () => {
  test.each(clusterIP)("$name", ({ parts, node, rules }) => {
    expect(rulesOf(service("ns/web", parts), { node })).toEqual(rules);
  });
});

describe("addresses that the outside can reach", () => {
  test.each(external)("$name", ({ parts, node, rules }) => {
    expect(rulesOf(service("ns/web", parts), { node })).toEqual(rules);
  });
});

test("ports are told apart by name and protocol; an endpoint that names no protocol answers for any", () => {
  const ports = [
    port(53, { name: "dns", protocol: "UDP" }),
    port(53, { name: "dns-tcp" }),
    port(9, { name: "s", protocol: "SCTP" }),
  ];
  const endpoints = [
    endpoint("10.0.1.1", {
      ports: [
        { name: "dns", port: 1053, protocol: "UDP" },
        { name: "dns-tcp", port: 2053, protocol: "UDP" },
        { name: "s", port: 9009 },
      ],
    }),
  ];
  const shown = rulesOf(service("ns/dns", { ports, endpoints, portHasEndpoints: [] }), {
    node: { podTraffic: undefined },
  });
  expect(shown).toEqual([
    `nat IP-10.96.0.0: -d ${ip}/32 udp --dport 53 -j SVC`,
    `filter SERVICES: -d ${ip}/32 tcp --dport 53 -j REJECT`,
    `nat IP-10.96.0.0: -d ${ip}/32 sctp --dport 9 -j SVC`,
    "SVC: -p udp -j DNAT --to-destination 10.0.1.1:1053",
    "SVC: -p sctp -j DNAT --to-destination 10.0.1.1:9009",
  ]);
});

test("IPv6 has its own addresses, masks and errors", () => {
  const endpoints = [endpoint("fd00::7", { ports: [{ name: "", port: 8080 }] })];
  const parts = { ips: [ip, "fd00:96::a"], endpoints, externalIPs: ["2001:db8::9", "1.1.1.1"] };
  expect(
    rulesOf(service("ns/web", parts), { node: { family: "v6" } }).map((text) => text.replace(/IP-\S{16}:/, "IP:")),
  ).toEqual([
    "nat IP: -d fd00:96::a/128 tcp --dport 80 -j SVC",
    "nat IP: -d 2001:db8::9/128 tcp --dport 80 -j EXT",
    "SVC: ! -s fd00:10::/64 -d fd00:96::a/128 tcp --dport 80 -j MARK-MASQ",
    "SVC: -p tcp -j DNAT --to-destination [fd00::7]:8080",
    "EXT: -j MARK-MASQ",
    "EXT: -j SVC",
  ]);
});

test("what is no address or no port number is left out, so that it cannot spoil the rules of others", () => {
  const bad = endpoint("10.0.1.1", {
    ports: [{ name: "", port: 0 }],
    addresses: { v4: ["10.0.1.1 -j ACCEPT"], v6: [] },
  });
  const shown = rulesOf({
    ...service("ns/web", { endpoints: [bad] }),
    service: { ...service("ns/web").service, clusterIPs: { v4: ["x"], v6: [] } },
  });
  expect(shown).toEqual([]);
});
