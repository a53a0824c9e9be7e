import { endpoint, port, service } from "@kpng/model/testing/views.ts";
import type { FirstPacket, PacketOutcome } from "@kpng/service-plan/testing/outcomes.ts";
import { expect, test } from "vitest";
import { planService } from "../plan-service.ts";
import { nodePlan } from "./node-plans.ts";
import { indexPlans, outcomes } from "./outcomes.ts";

const node = nodePlan({
  nodePortAddresses: ["192.168.0.2"],
  isLoopbackNodePorts: false,
  podTraffic: { kind: "source", cidr: "10.0.0.0/16" },
});
const here = endpoint("10.0.1.1", {
  ports: [{ name: "", port: 8080 }],
  isOnNode: true,
  use: { cluster: true, local: true },
});
const away = endpoint("10.0.2.2", { ports: [{ name: "", port: 8080 }] });
const host = { ...here, key: "host", addresses: { v4: ["192.168.0.2"], v6: [] } };
const planned = indexPlans(
  node,
  ["127.0.0.0/8", "192.168.0.2", "192.168.0.3", "5.6.7.9"],
  [
    service("ns/web", { createdSeconds: 1, ports: [port(80, { nodePort: 30_080 })], endpoints: [here, away] }),
    service("ns/other-web", { createdSeconds: 2, endpoints: [] }),
    service("evil/web", {
      ips: ["10.96.0.66"],
      loadBalancerIPs: ["10.96.0.10"],
      ipFilters: [{ sourceRanges: ["203.0.113.0/24"] }],
    }),
    service("ns/sticky", { ips: ["10.96.0.11"], endpoints: [away], clientIPAffinitySeconds: 60 }),
    service("ns/host", { ips: ["10.96.0.12"], endpoints: [host], internalTrafficPolicy: "Local" }),
    service("ns/none", { ips: ["10.96.0.13"], externalIPs: ["9.9.9.9"], ports: [port(80, { nodePort: 30_081 })] }),
    service("ns/balanced", {
      type: "LoadBalancer",
      ips: ["10.96.0.14"],
      loadBalancerIPs: ["5.6.7.8", "5.6.7.9"],
      externalTrafficPolicy: "Local",
      healthCheckNodePort: 30_100,
      ipFilters: [{ sourceRanges: ["203.0.113.0/24", "192.168.0.0/24"] }],
      endpoints: [here, away],
    }),
  ].map((view) => planService(view, node)),
);

const to = (address: string, isMasqueraded: boolean): PacketOutcome => ({
  kind: "to",
  address,
  port: 8080,
  isMasqueraded,
});
const fromPod = { source: "10.0.3.3", inInterface: "eth0" };
const fromOutside = { source: "203.0.113.7", inInterface: "eth0" };
const fromNode = { source: "192.168.0.2", inInterface: undefined };
const untouched = { kind: "untouched" } as const;

interface Row {
  readonly name: string;
  readonly packet: Pick<FirstPacket, "source" | "inInterface" | "destination"> & Partial<FirstPacket>;
  readonly outcomes: readonly PacketOutcome[];
}

test.each<Row>([
  {
    name: "a pod reaches every endpoint of a cluster IP with its own address",
    packet: { ...fromPod, destination: "10.96.0.10" },
    outcomes: [to("10.0.1.1", false), to("10.0.2.2", false)],
  },
  {
    name: "an endpoint on the node that reaches itself is masqueraded",
    packet: { source: "10.0.1.1", inInterface: "cbr0", destination: "10.96.0.10" },
    outcomes: [to("10.0.1.1", true), to("10.0.2.2", false)],
  },
  {
    name: "another protocol of the port is untouched",
    packet: { ...fromPod, destination: "10.96.0.10", protocol: "udp" },
    outcomes: [untouched],
  },
  {
    name: "affinity or chance leads to an endpoint",
    packet: { ...fromPod, destination: "10.96.0.11" },
    outcomes: [to("10.0.2.2", false), { ...to("10.0.2.2", false), affinitySeconds: 60 } as PacketOutcome],
  },
  {
    name: "a packet that is delivered on the node keeps its source",
    packet: { ...fromOutside, destination: "10.96.0.12" },
    outcomes: [to("192.168.0.2", false)],
  },
  {
    name: "a packet of the node to an endpoint on the node is masqueraded",
    packet: { ...fromNode, destination: "10.96.0.12" },
    outcomes: [to("192.168.0.2", true)],
  },
  {
    name: "a cluster IP without endpoints refuses every sender",
    packet: { ...fromNode, destination: "10.96.0.13" },
    outcomes: [{ kind: "refused" }],
  },
  {
    name: "an external IP without endpoints refuses packets from outside",
    packet: { ...fromOutside, destination: "9.9.9.9" },
    outcomes: [{ kind: "refused" }],
  },
  {
    name: "a packet of the node to an external IP of another machine is not refused",
    packet: { ...fromNode, destination: "9.9.9.9" },
    outcomes: [untouched],
  },
  {
    name: "a node port is served at the chosen addresses",
    packet: { ...fromOutside, destination: "192.168.0.2", port: 30_080 },
    outcomes: [to("10.0.1.1", true), to("10.0.2.2", true)],
  },
  {
    name: "a node port is not served at other local addresses",
    packet: { ...fromOutside, destination: "192.168.0.3", port: 30_080 },
    outcomes: [untouched],
  },
  {
    name: "a node port without endpoints refuses at every local address",
    packet: { source: "127.0.0.1", inInterface: undefined, destination: "127.0.0.1", port: 30_081 },
    outcomes: [{ kind: "refused" }],
  },
  {
    name: "a client outside reaches endpoints on the node under policy Local",
    packet: { ...fromOutside, destination: "5.6.7.8" },
    outcomes: [to("10.0.1.1", false)],
  },
  {
    name: "the node reaches all endpoints under policy Local",
    packet: { ...fromNode, destination: "5.6.7.8" },
    outcomes: [to("10.0.1.1", true), to("10.0.2.2", true)],
  },
  {
    name: "the node reaches a load-balancer IP of its own, whose packets have it as source",
    packet: { source: "5.6.7.9", inInterface: undefined, destination: "5.6.7.9" },
    outcomes: [to("10.0.1.1", true), to("10.0.2.2", true)],
  },
  {
    name: "a sender outside the source ranges is dropped",
    packet: { ...fromPod, destination: "5.6.7.8" },
    outcomes: [{ kind: "dropped" }],
  },
  {
    name: "a health-check port accepts TCP",
    packet: { ...fromOutside, destination: "192.168.0.3", port: 30_100 },
    outcomes: [{ kind: "untouched", isAccepted: true }],
  },
])("$name", ({ packet, outcomes: expected }) => {
  expect(outcomes(planned, { protocol: "tcp", port: 80, ...packet })).toEqual(expected);
});
