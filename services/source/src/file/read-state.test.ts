import assert from "node:assert/strict";
import { expect, test } from "vitest";
import { addresses, draining, node, service, servicePort } from "../testing/build.ts";
import { readGood, state } from "./testing/texts.ts";

test("state: a minimal Service and Node get KPNG's defaults, and absent IPs stay absent", () => {
  const { services, nodes } = readGood("nodes: [{name: n1}]\nservices: [{service: {name: web, ports: [{port: 80}]}}]");
  expect(nodes).toEqual([node("n1")]);
  const ports = [servicePort({ name: "", targetPort: 0 })];
  const noIPs = { clusterIPs: undefined, externalIPs: undefined };
  expect(services).toEqual([service({ namespace: "default", ports, ...noIPs })]);
});

test("state: null is the same as absent for all fields", () => {
  const text = `nodes: null
services:
- service: {name: web, namespace: null, type: null, labels: null, ips: null, ipfilters: null, ports: null, sessionaffinity: null}
  endpoints:
  - {podname: null, endpoint: {ips: {v4: [10.1.0.1], v6: null}, portoverrides: null, scopes: null}, conditions: null, topology: null, hints: null}
- service: {name: b, ips: {clusterips: null, externalips: null, loadbalancerips: null}, sessionaffinity: {clientip: null}}
  endpoints: null
`;
  const { services, slices } = readGood(text);
  assert.equal(services[0]?.namespace, "default");
  assert.equal(slices[0]?.endpoints[0]?.conditions.ready, true);
});

test("state: our own keys hold what KPNG's keys cannot, and hints are sorted", () => {
  const { services, slices, nodes } = readGood(`
nodes: [{name: n1, addresses: [10.9.0.1], podcidrs: [10.1.0.0/24], iseligible: false}]
services:
- service: {name: web, proxyname: other, proxymodeloadbalancerips: {v4: [192.0.2.1]}, sessionaffinity: {clientip: {timeoutseconds: 60}}}
  endpoints:
  - endpoint: {ips: {v4: [10.1.0.1]}, portoverrides: [{name: a, port: 1, protocol: 2}]}
    conditions: {ready: false, serving: true, terminating: true}
    hints: {zones: [b, a], nodes: [n2, n1]}
`);
  expect(nodes).toEqual([node("n1", { addresses: ["10.9.0.1"], podCIDRs: ["10.1.0.0/24"], isEligible: false })]);
  const proxyModeLoadBalancerIPs = addresses("192.0.2.1");
  expect(services[0]).toMatchObject({ proxyName: "other", proxyModeLoadBalancerIPs, clientIPAffinitySeconds: 60 });
  expect(slices[0]?.endpoints[0]).toMatchObject({
    ...{ conditions: draining, hintedZones: ["a", "b"], hintedNodes: ["n1", "n2"] },
    ports: [{ name: "a", port: 1, protocol: "UDP" }],
  });
});

/** One line for each slice: Service, name, whether it has KPNG's keys, addresses. */
function describeSlices({ slices }: ReturnType<typeof readGood>): readonly string[] {
  return slices.map(({ namespace, serviceName, name, hasPodKeys, endpoints }) => {
    const addresses = endpoints.map((one) => one.addresses.v4[0]).join(" ");
    return `${namespace}/${serviceName} ${name} ${hasPodKeys ? "pod keys" : "own keys"}: ${addresses}`;
  });
}

test("state: an endpoint belongs to the Service that contains it and to the slice named by sourcename", () => {
  const read = readGood(
    state(
      "{namespace: x, servicename: y, podname: p1, endpoint: {ips: {v4: [10.1.0.1]}}}",
      "{sourcename: web, podname: p2, endpoint: {ips: {v4: [10.1.0.2]}}}",
      "{sourcename: web-abc, podname: p1, endpoint: {ips: {v4: [10.1.0.3]}}}",
    ),
  );
  expect(describeSlices(read)).toEqual([
    "default/web web pod keys: 10.1.0.1 10.1.0.2",
    "default/web web-abc own keys: 10.1.0.3",
  ]);
});

test("state: a repeated pod gets a separate slice, so that keys are unique", () => {
  const again = (address: string) => `{podname: p1, endpoint: {ips: {v4: [${address}]}}}`;
  const alone = "{endpoint: {ips: {v4: [10.1.0.4]}}}";
  expect(describeSlices(readGood(state(again("10.1.0.1"), again("10.1.0.2"), again("10.1.0.3"), alone)))).toEqual([
    "default/web web pod keys: 10.1.0.1 10.1.0.4",
    "default/web web~2 own keys: 10.1.0.2",
    "default/web web~3 own keys: 10.1.0.3",
  ]);
});

test("state: conditions without ready mean not ready, as in KPNG", () => {
  const { slices } = readGood(state("{endpoint: {ips: {v4: [10.1.0.1]}}, conditions: {}}"));
  assert.deepEqual(slices[0]?.endpoints[0]?.conditions, { ready: false, serving: false, terminating: false });
});

test("state: an endpoint without addresses is ignored with a note", () => {
  const { slices, notes } = readGood(state("{podname: p1}"));
  assert.deepEqual(slices, []);
  assert.deepEqual(
    notes.map((note) => note.problem),
    ["services[0].endpoints[0]: endpoint ignored: no address"],
  );
});
