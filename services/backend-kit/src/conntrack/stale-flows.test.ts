import { endpoint, port, service, view } from "@kpng/model/testing/views.ts";
import { expect, test } from "vitest";
import { isStale, StaleGroups } from "./stale-flows.ts";
import { parseFlow, type UdpFlow } from "./udp-flow.ts";
import { ipFrontend, nodePortFrontend, udpFrontends } from "./udp-frontends.ts";

const dns = { protocol: "UDP", nodePort: 30053, targetPort: 5353 } as const;
const terminating = { ready: false, serving: true, terminating: true };
const dead = { ready: false, serving: false, terminating: true };

const dnsView = view([
  service("kube-system/dns", {
    ips: ["10.96.0.10", "fd00:96::10"],
    externalIPs: ["192.0.2.1"],
    loadBalancerIPs: ["192.0.2.2"],
    ports: [port(53, { ...dns, name: "dns" }), port(53, { name: "dns-tcp" })],
    endpoints: [
      endpoint("10.1.0.1", { ports: [{ name: "dns", port: 5353, protocol: "UDP" }] }),
      endpoint("10.1.0.2", { ports: [{ name: "dns", port: 5353 }], conditions: terminating }),
      endpoint("10.1.0.3", { ports: [{ name: "dns", port: 5353 }], conditions: dead }),
      endpoint("10.1.0.4", { ports: [{ name: "dns-tcp", port: 5353 }] }),
      endpoint("fd00:1::1", { ports: [{ name: "dns", port: 5353 }] }),
    ],
  }),
  service("a/go", {
    ips: ["10.96.0.11"],
    ports: [port(53, { ...dns, nodePort: 0 })],
    endpoints: [endpoint("10.1.0.5")],
  }),
  service("a/named", {
    ips: ["10.96.0.12"],
    ports: [port(53, { protocol: "UDP", targetPort: "dns" })],
    endpoints: [endpoint("10.1.0.6")],
  }),
  service("a/none", { ips: ["10.96.0.13"], ports: [port(53, { protocol: "UDP" })] }),
  service("a/tcp", { ips: ["10.96.0.14"], ports: [port(53)], endpoints: [endpoint("10.1.0.7")] }),
]);
const present = udpFrontends(dnsView);
const gone = new Set([ipFrontend("10.96.0.20", 53), nodePortFrontend("v4", 30099)]);
const isNodePortAddress = (address: string): boolean => address === "10.0.0.1";

/** *Shape:* `destination port -> reply source port`. */
function flow(text: string): UdpFlow {
  const [destination = "", destinationPort, , replySource = "", replySourcePort] = text.split(" ");
  return {
    family: destination.includes(":") ? "v6" : "v4",
    destination,
    destinationPort: Number(destinationPort),
    replySource,
    replySourcePort: Number(replySourcePort),
  };
}

const listeners = new Map([
  ["192.0.2.9 20001", ipFrontend("10.96.0.10", 53)],
  ["192.0.2.9 20002", nodePortFrontend("v4", 30053)],
  ["10.96.0.11 53", ipFrontend("10.96.0.11", 53)],
]);
const carried = udpFrontends(dnsView, listeners);

test.each([
  { name: "to its listener", flow: "10.96.0.10 53 -> 192.0.2.9 20001", stale: false },
  { name: "to an endpoint, by a proxy before", flow: "10.96.0.10 53 -> 10.1.0.1 5353", stale: false },
  { name: "to an endpoint that is gone, by a proxy before", flow: "10.96.0.10 53 -> 10.1.0.3 5353", stale: true },
  { name: "started before the rules", flow: "10.96.0.10 53 -> 10.96.0.10 53", stale: true },
  { name: "to the listener of another frontend", flow: "10.96.0.10 53 -> 192.0.2.9 20002", stale: true },
  { name: "of a node port, to its listener", flow: "10.0.0.1 30053 -> 192.0.2.9 20002", stale: false },
  { name: "of an unknown frontend, to a listener", flow: "10.96.0.99 53 -> 192.0.2.9 20001", stale: true },
  { name: "of an unknown frontend, to another place", flow: "10.96.0.99 53 -> 192.0.2.9 20003", stale: false },
  { name: "directly to a listener", flow: "192.0.2.9 20001 -> 192.0.2.9 20001", stale: false },
  { name: "to an address at which a listener is itself", flow: "10.96.0.11 53 -> 10.96.0.11 53", stale: false },
])("with listeners, a flow $name: stale is $stale", ({ flow: text, stale }) => {
  expect(isStale(flow(text), { present: carried, gone, isNodePortAddress, listeners })).toBe(stale);
});

test.each([
  { name: "to a serving endpoint", flow: "10.96.0.10 53 -> 10.1.0.1 5353", stale: false },
  { name: "to one that terminates but serves", flow: "10.96.0.10 53 -> 10.1.0.2 5353", stale: false },
  { name: "to one that no longer serves", flow: "10.96.0.10 53 -> 10.1.0.3 5353", stale: true },
  { name: "to an address that is no endpoint", flow: "10.96.0.10 53 -> 10.1.0.9 5353", stale: true },
  { name: "to an endpoint's other port", flow: "10.96.0.10 53 -> 10.1.0.1 53", stale: true },
  { name: "to an endpoint of another port of the Service", flow: "10.96.0.10 53 -> 10.1.0.4 5353", stale: true },
  { name: "started before the rules", flow: "10.96.0.10 53 -> 10.96.0.10 53", stale: true },
  { name: "to another port of the cluster IP", flow: "10.96.0.10 54 -> 10.1.0.9 54", stale: false },
  { name: "IPv6, to an endpoint", flow: "fd00:96::10 53 -> fd00:1::1 5353", stale: false },
  { name: "IPv6, to none", flow: "fd00:96::10 53 -> fd00:1::2 5353", stale: true },
  { name: "to an external IP", flow: "192.0.2.1 53 -> 10.1.0.9 5353", stale: true },
  { name: "to a load-balancer IP", flow: "192.0.2.2 53 -> 10.1.0.9 5353", stale: true },
  { name: "to a node port of this node", flow: "10.0.0.1 30053 -> 10.1.0.9 5353", stale: true },
  { name: "to a node port of this node and a serving endpoint", flow: "10.0.0.1 30053 -> 10.1.0.1 5353", stale: false },
  { name: "to the same port of another host", flow: "8.8.8.8 30053 -> 8.8.8.8 30053", stale: false },
  {
    name: "of an endpoint without ports, at the Service's target port",
    flow: "10.96.0.11 53 -> 10.1.0.5 5353",
    stale: false,
  },
  { name: "of an endpoint whose port is unknown", flow: "10.96.0.12 53 -> 10.1.0.6 999", stale: false },
  { name: "without endpoints, translated", flow: "10.96.0.13 53 -> 10.1.0.8 53", stale: true },
  { name: "without endpoints, not translated", flow: "10.96.0.13 53 -> 10.96.0.13 53", stale: false },
  { name: "of a Service without a UDP port", flow: "10.96.0.14 53 -> 10.1.0.9 53", stale: false },
  { name: "of a frontend that is gone", flow: "10.96.0.20 53 -> 10.1.0.1 53", stale: true },
  { name: "of a frontend that is gone, not translated", flow: "10.96.0.20 53 -> 10.96.0.20 53", stale: false },
  { name: "of a node port that is gone", flow: "10.0.0.1 30099 -> 10.1.0.1 53", stale: true },
  { name: "of a node port that is gone, not translated", flow: "10.0.0.1 30099 -> 10.0.0.1 30099", stale: false },
  { name: "to an address that is not a frontend", flow: "1.1.1.1 53 -> 1.1.1.1 53", stale: false },
])("a flow $name: stale is $stale", ({ flow: text, stale }) => {
  expect(isStale(flow(text), { present, gone, isNodePortAddress }), text).toBe(stale);
});

test.each([
  {
    name: "IPv4, translated, unreplied",
    line: "udp      17 29 src=10.0.0.9 dst=10.96.0.10 sport=1 dport=53 [UNREPLIED] src=10.1.0.1 dst=10.0.0.9 sport=5353 dport=1 mark=0 use=1",
    flow: "10.96.0.10 53 -> 10.1.0.1 5353",
  },
  {
    name: "IPv6 in the long form, with counters and a zone",
    line: "ipv6     10 udp      17 110 src=fd00::9 dst=fd00:96::10 sport=1 dport=53 packets=1 bytes=50 src=fd00:1:0::1 dst=fd00::9 sport=5353 dport=1 packets=1 bytes=80 [ASSURED] mark=0 secctx=x zone=3 delta-time=2 use=1",
    flow: "fd00:96::10 53 -> fd00:1::1 5353",
  },
  {
    name: "TCP",
    line: "tcp      6 5 ESTABLISHED src=1.1.1.1 dst=2.2.2.2 sport=1 dport=53 src=2.2.2.2 dst=1.1.1.1 sport=53 dport=1",
  },
  { name: "the summary line", line: "conntrack v1.4.7 (conntrack-tools): 5 flow entries have been shown." },
  { name: "a truncated line", line: "udp      17 29 src=10.0.0.9 dst=10.96.0.10 sport=1 dport=53" },
])("$name is parsed", ({ line, flow: text }) => {
  expect(parseFlow(line)).toEqual(text === undefined ? undefined : flow(text));
});

test("a thousand clients of one dead endpoint are one deletion", () => {
  const groups = new StaleGroups();
  for (let client = 0; client < 1_000; client++) groups.add(flow("10.96.0.10 53 -> 10.1.0.9 5353"));
  groups.add(flow("10.96.0.10 53 -> 10.1.0.8 5353"));
  expect(groups.groups.length).toBe(2);
});
