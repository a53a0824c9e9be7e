import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { EndpointSchema, NodeSchema, Protocol, ServiceSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { GetStatusResponseSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { expect, test } from "vitest";
import type { WatcherState } from "./findings.ts";
import { findFindings } from "./findings.ts";

const nowMs = 1_800_000_000_000;

interface Parts {
  readonly status?: MessageInitShape<typeof GetStatusResponseSchema>;
  readonly services?: readonly MessageInitShape<typeof ServiceSchema>[];
  readonly endpoints?: readonly MessageInitShape<typeof EndpointSchema>[];
  readonly nodes?: readonly MessageInitShape<typeof NodeSchema>[];
}

function stateOf({ status = {}, services = [], endpoints = [], nodes = [] }: Parts): WatcherState {
  return {
    status: create(GetStatusResponseSchema, { isSynced: true, serviceCount: 1, ...status }),
    services: services.map((one) => create(ServiceSchema, { namespace: "default", type: "ClusterIP", ...one })),
    endpoints: endpoints.map((one) => create(EndpointSchema, { namespace: "default", isReady: true, ...one })),
    nodes: nodes.map((one) => create(NodeSchema, { isKnown: true, podCidrs: ["10.1.0.0/24"], ...one })),
  };
}

function found(parts: Parts, hasNodes = true): readonly string[] {
  return findFindings(stateOf(parts), { hasNodes, nowMs }).map(
    ({ severity, subject, text }) => `${severity} ${subject}: ${text}`,
  );
}

const ready = { ready: 1 };
const http = [{ port: 80, protocol: Protocol.TCP }];

test("a cluster in order has no findings", () => {
  expect(
    found({
      services: [
        { name: "web", clusterIps: ["10.96.0.1"], ports: http, endpoints: ready },
        { name: "db", isHeadless: true },
        { name: "away", type: "ExternalName" },
      ],
      endpoints: [{ service: "web", hintedZones: ["a"], zone: "a" }, { service: "db" }],
      nodes: [{ name: "n1", zone: "a", state: ApplyState.CURRENT }],
    }),
  ).toEqual([]);
});

test.each([
  { endpoints: {}, text: "warning service/default/web: it has no endpoints: connections are refused" },
  {
    endpoints: { notReady: 2 },
    text: "error service/default/web: none of its 2 endpoints is ready: connections are refused",
  },
  {
    endpoints: { terminating: 1, notReady: 1 },
    text: "warning service/default/web: no endpoint is ready; 1 that terminate still receive its traffic",
  },
])("a Service with endpoints $endpoints", ({ endpoints, text }) => {
  expect(found({ services: [{ name: "web", endpoints }] })).toEqual([text]);
});

test("slices without a Service", () => {
  expect(found({ endpoints: [{ service: "old" }, { service: "old" }] })).toEqual([
    "warning service/default/old: EndpointSlices name it, but it does not exist",
  ]);
});

const created = (seconds: number) => ({ createdAt: timestampFromMs(seconds * 1000), endpoints: ready });
const otherPort = [{ port: 81, protocol: Protocol.TCP }];

test.each([
  {
    name: "two Services at one address or node port: the younger gets no packets",
    services: [
      { name: "a", externalIps: ["192.0.2.9"], ports: http, ...created(2) },
      { name: "b", externalIps: ["192.0.2.9"], ports: http, ...created(1) },
      { name: "c", externalIps: ["192.0.2.9"], ports: otherPort, ...created(3) },
    ],
    findings: ["error service/default/a: it gets no packets at 192.0.2.9 port 80/TCP, which service/default/b has"],
  },
  {
    name: "an external IP that is the cluster IP of another Service, at any port",
    services: [
      { name: "a", externalIps: ["10.96.0.1"], ports: [...http, ...otherPort], ...created(1) },
      { name: "b", clusterIps: ["10.96.0.1"], ports: http, ...created(2) },
    ],
    findings: [
      "error service/default/a: it claims 10.96.0.1, the cluster IP of service/default/b, which keeps its ports",
    ],
  },
  {
    name: "an external IP that is the load-balancer IP of a younger Service",
    services: [
      { name: "a", externalIps: ["192.0.2.9"], ports: http, ...created(1) },
      { name: "b", loadBalancerIps: ["192.0.2.9"], externalIps: ["192.0.2.9"], ports: http, ...created(2) },
    ],
    findings: ["error service/default/a: it gets no packets at 192.0.2.9 port 80/TCP, which service/default/b has"],
  },
])("$name", ({ services, findings }) => {
  expect(found({ services })).toEqual(findings);
  expect(found({ services: services.toReversed() })).toEqual(findings);
});

test("zone hints that are incomplete, or that leave out a zone of nodes", () => {
  const nodes = [
    { name: "n1", zone: "a", state: ApplyState.CURRENT },
    { name: "n2", zone: "b", state: ApplyState.CURRENT },
  ];
  const services = [{ name: "web", endpoints: ready }];
  const hinted = { service: "web", hintedZones: ["a"] };
  expect(found({ services, nodes, endpoints: [hinted, { service: "web" }] })).toEqual([
    "warning service/default/web: 1 of 2 ready endpoints have no zone hint, so no hint is used",
  ]);
  expect(found({ services, nodes, endpoints: [hinted] })).toEqual([
    "warning service/default/web: its hints name no endpoint for zone b, whose nodes use all endpoints",
  ]);
  expect(found({ services, nodes, endpoints: [{ ...hinted, hintedZones: ["a", "b"] }] })).toEqual([]);
});

test("nodes that are behind, failing, absent or unknown, only for a watcher with nodes", () => {
  const nodes = [
    { name: "n1", state: ApplyState.BEHIND, unappliedSince: timestampFromMs(nowMs - 60_000) },
    { name: "n2", state: ApplyState.BEHIND, unappliedSince: timestampFromMs(nowMs - 1_000) },
    { name: "n3", state: ApplyState.FAILING, error: "no nft" },
    { name: "n4", state: ApplyState.ABSENT },
    { name: "n5", state: ApplyState.UNKNOWN, isKnown: false },
  ];
  expect(found({ nodes })).toEqual([
    "error node/n1: a change has waited for 1m to be applied",
    "error node/n3: its last attempt to apply a change failed: no nft",
    "error node/n5: a backend follows it, but the cluster has no such Node",
    "warning node/n4: no backend of this node follows this watcher",
  ]);
  expect(found({ nodes }, false)).toEqual([]);
});

test("a watcher that has not listed everything", () => {
  expect(found({ status: { isSynced: false, missingKinds: ["slices"] } })).toEqual([
    "error watcher: it has not yet listed slices",
  ]);
});

test("a watcher without Services", () => {
  expect(found({ status: { serviceCount: 0 } })).toEqual(["warning watcher: it holds no Service"]);
});

test("no Node with pod CIDRs", () => {
  expect(found({ nodes: [{ name: "n1", podCidrs: [], state: ApplyState.CURRENT }] })[0]).toContain(
    "no Node has pod CIDRs",
  );
});
