import { readFileSync } from "node:fs";
import { join } from "node:path";
import { endpoint, port, service, view } from "@kpng/model/testing/views.ts";
import { useScripts } from "@kpng/process/testing/use-scripts.ts";
import { expect, test } from "vitest";
import {
  createConntrackTool,
  groupOf,
  ipFrontend,
  isStale,
  nodePortFrontend,
  parseFlow,
  type UdpFlow,
  udpFrontends,
} from "./udp-flows.ts";

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
  { name: "of an endpoint without the port that is named", flow: "10.96.0.12 53 -> 10.1.0.6 999", stale: true },
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
  const clients = Array.from({ length: 1_000 }, () => flow("10.96.0.10 53 -> 10.1.0.9 5353"));
  const others = [flow("10.96.0.10 53 -> 10.1.0.8 5353")];
  expect(new Set([...clients, ...others].map(groupOf)).size).toBe(2);
});

const never = new AbortController().signal;
const line = "udp 17 29 src=1.1.1.1 dst=10.96.0.10 sport=1 dport=53 src=10.1.0.9 dst=1.1.1.1 sport=5353 dport=1 use=1";
const udpFlow = { family: "v4", destination: "10.96.0.10", destinationPort: 53, replySource: "10.1.0.9" } as const;
const groups: readonly UdpFlow[] = [5353, 5354].map((replySourcePort) => ({ ...udpFlow, replySourcePort }));

/** A program `conntrack` that records its arguments and then runs the script. */
function play(script: string): { readonly program: string; calls(): string } {
  const program = join(useScripts({ conntrack: `echo "$@" >> "$0.calls"\n${script}` }), "conntrack");
  return { program, calls: () => readFileSync(`${program}.calls`, "utf8") };
}

const deletion = (port: number): string =>
  `-D -f ipv4 -p udp -d 10.96.0.10 --dport 53 -r 10.1.0.9 --reply-port-src ${port}\n`;

test("the deleted flows are counted, and a deletion may find nothing to delete", async () => {
  const none = "conntrack v1.4.7 (conntrack-tools): 0 flow entries have been deleted.";
  const { program, calls } = play(`case "$*" in *5353) echo "${line}";; *) echo "${none}" >&2; exit 1;; esac`);
  expect(await createConntrackTool(program).deleteUdp(groups, never)).toBe(1);
  expect(calls()).toBe(deletion(5353) + deletion(5354));
});

test("no deletion follows one that fails", async () => {
  const { program, calls } = play("echo 'Operation failed: not permitted' >&2; exit 1");
  await expect(createConntrackTool(program).deleteUdp(groups, never)).rejects.toThrow(/^\[CONNTRACK_FAILED\]/);
  expect(calls()).toBe(deletion(5353));
});

test("a dump is read line by line, skipping other lines, also if the last line has no end", async () => {
  const { program, calls } = play(`printf 'tcp 6 x\\n${line}\\n\\nnonsense\\n${line}'`);
  const flows: UdpFlow[] = [];
  await createConntrackTool(program).visitUdp("v6", (found) => flows.push(found), never);
  expect(flows).toEqual([groups[0], groups[0]]);
  expect(calls()).toBe("-L -p udp -f ipv6\n");
});

test("a missing tool and a failing tool are named in the error", async () => {
  const visit = (program: string) => createConntrackTool(program).visitUdp("v4", () => undefined, never);
  await expect(visit("/none/conntrack")).rejects.toThrow(/^\[CONNTRACK_FAILED\] command .* not found/);
  const { program } = play("echo 'Operation failed: not permitted' >&2; exit 1");
  await expect(visit(program)).rejects.toThrow(/^\[CONNTRACK_FAILED\] .* -L failed \(exit 1\): Operation failed/);
});

const wholeView = view([
  service("a/all", {
    ...{ mapIP: true, isHeadless: true, ips: [], ports: [], externalIPs: ["198.51.100.9", "10.0.0.1"] },
    endpoints: [
      endpoint("10.1.0.1"),
      endpoint("10.1.0.2", { conditions: terminating }),
      endpoint("10.1.0.3", { conditions: dead }),
    ],
  }),
  service("a/dns", {
    ...{ ips: ["10.96.0.2"], externalIPs: ["198.51.100.9"], ports: [port(53, { protocol: "UDP", targetPort: 5353 })] },
    endpoints: [endpoint("10.1.0.8")],
  }),
]);

test.each([
  { what: "to an endpoint at the same port", text: "198.51.100.9 4000 -> 10.1.0.1 4000", stale: false },
  { what: "to one that terminates", text: "198.51.100.9 4000 -> 10.1.0.2 4000", stale: false },
  { what: "to a dead one", text: "198.51.100.9 4000 -> 10.1.0.3 4000", stale: true },
  { what: "to another port of an endpoint", text: "198.51.100.9 4000 -> 10.1.0.1 4001", stale: true },
  { what: "from before the rules", text: "198.51.100.9 4000 -> 198.51.100.9 4000", stale: true },
  { what: "to a port of another Service there", text: "198.51.100.9 53 -> 10.1.0.8 5353", stale: false },
  {
    what: "to that port, and to an endpoint of the whole address",
    text: "198.51.100.9 53 -> 10.1.0.1 53",
    stale: true,
  },
  { what: "to an address of the node", text: "10.0.0.1 4000 -> 10.0.0.1 4000", stale: false },
])("a flow to a whole address, $what: stale is $stale", ({ text, stale }) => {
  const none: ReadonlySet<string> = new Set();
  const served = { present: udpFrontends(wholeView, undefined, true), gone: none, isNodePortAddress };
  expect(isStale(flow(text), served)).toBe(stale);
  // A proxy that does not serve whole addresses leaves their flows alone.
  const ports = { present: udpFrontends(wholeView), gone: none, isNodePortAddress };
  expect(isStale(flow(text), ports)).toBe(stale && text.includes(" 53 "));
  const removed = { ...served, present: new Map(), gone: new Set(served.present.keys()) };
  expect(isStale(flow(text), removed)).toBe(!text.includes("-> 198") && !text.startsWith("10.0.0.1"));
});
