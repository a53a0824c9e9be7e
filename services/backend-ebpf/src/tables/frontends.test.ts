import type { Frontend, Route, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { describe, expect, test } from "vitest";
import { frontendKey, sizes, slotKeyPlace } from "../layout/layout.ts";
import { describeFrontend, desiredFrontends, makeEbpfChange, readSlots } from "./frontends.ts";

const cluster: Route = { kind: "balance", set: "cluster", isMasqueraded: true };
const kept: Route = { kind: "balance", set: "cluster", isMasqueraded: false };
const local: Route = { kind: "balance", set: "local", isMasqueraded: false };
const refuse: Route = { kind: "refuse" };
const place = { kind: "clusterIP", address: "10.96.0.1", protocol: "TCP", port: 80, sources: undefined } as const;

function plan(frontends: readonly Frontend[], affinitySeconds?: number): ServicePlan {
  const sets = {
    cluster: [
      { address: "10.1.1.1", port: 8080 },
      { address: "10.1.2.1", port: 8080 },
    ],
    local: [{ address: "10.1.1.1", port: 8080 }],
  };
  const { protocol = "TCP" } = frontends[0] ?? {};
  const port = { name: "ns/web", protocol, port: 80, affinitySeconds, sets, frontends };
  return { key: "ns/web", family: "v4", ports: [port], hairpin: [], healthCheck: undefined };
}

const lines = (given: ServicePlan, node = nodePlan({ family: "v4" })): readonly string[] =>
  desiredFrontends(given, node).map(describeFrontend);

describe("desiredFrontends", () => {
  test("a frontend has a route for the node's sockets and one for those of pods", () => {
    const routes = { pod: kept, node: local, outside: { kind: "refuse" } } as const;
    const line = "TCP 10.96.0.1:80 pod balance 10.1.1.1:8080 10.1.2.1:8080; node balance 10.1.1.1:8080 # ns/web";
    expect(lines(plan([{ ...place, routes }]))).toEqual([line]);
  });

  test("pods that cannot be recognized are treated as clients outside", () => {
    const routes = { pod: kept, node: kept, outside: local };
    const [line] = lines(plan([{ ...place, routes }]), nodePlan({ family: "v4", podTraffic: undefined }));
    expect(line).toContain("pod balance 10.1.1.1:8080; node balance 10.1.1.1:8080 10.1.2.1:8080");
  });

  test("masquerade of everything is left to the rules, except for the node itself", () => {
    const node = nodePlan({ family: "v4", isMasqueradeAll: true });
    const [line] = lines(plan([{ ...place, routes: { pod: cluster, node: cluster, outside: cluster } }]), node);
    expect(line).toContain("pod leave; node balance 10.1.1.1:8080");
  });

  test("of frontends that share their routes, masquerade of everything concerns the cluster IP alone", () => {
    const routes = { pod: cluster, node: cluster, outside: cluster };
    const external = { ...place, kind: "externalIP", address: "192.0.2.1", routes } as const;
    const both = lines(plan([{ ...place, routes }, external]), nodePlan({ family: "v4", isMasqueradeAll: true }));
    expect(both.map((line) => / (pod.*?) balance/.exec(line)?.[1])).toEqual(["pod leave; node", "pod,node"]);
  });

  test.each([
    { what: "source ranges", sources: { ranges: ["192.0.2.0/24"], ownAddresses: [] }, route: cluster },
    {
      what: "source ranges without an endpoint",
      sources: { ranges: ["192.0.2.0/24"], ownAddresses: [] },
      route: refuse,
    },
    { what: "a frontend that drops", sources: undefined, route: { kind: "drop" } as const },
  ])("$what: left to the rules", ({ sources, route }) => {
    const routes = { pod: route, node: route, outside: route };
    expect(lines(plan([{ ...place, kind: "loadBalancerIP", sources, routes }]))[0]).toContain("pod,node leave");
  });

  test("routes with the same set share one run", () => {
    const routes = { pod: kept, node: cluster, outside: cluster };
    const frontends = desiredFrontends(
      plan([
        { ...place, routes },
        { ...place, kind: "nodePort", address: undefined, port: 30_080, routes },
      ]),
      nodePlan({ family: "v4" }),
    );
    expect(new Set(frontends.flatMap((frontend) => frontend.routes.map(({ run }) => run))).size).toBe(1);
  });

  test.each([
    { protocol: "TCP", affinitySeconds: undefined, said: ["TCP 10.96.0.1:80 pod,node balance 10.1.1.1:8080 # ns/web"] },
    { protocol: "TCP", affinitySeconds: 10, said: ["TCP 10.96.0.1:80 pod,node leave # ns/web"] },
    { protocol: "UDP", affinitySeconds: undefined, said: [] },
    { protocol: "SCTP", affinitySeconds: undefined, said: [] },
  ] as const)("$protocol with affinity $affinitySeconds: $said", ({ protocol, affinitySeconds, said }) => {
    const routes = { pod: local, node: local, outside: local };
    expect(lines(plan([{ ...place, protocol, routes }], affinitySeconds))).toEqual(said);
  });
});

describe("readSlots", () => {
  const key = frontendKey("v4", place);
  const slots = Buffer.alloc(2 * sizes.slot);
  slots.write(key, sizes.slot + slotKeyPlace, "latin1");

  test.each([
    { what: "the last slot, which has its key", slot: 1, found: [1] },
    { what: "a slot that has no key", slot: 0, found: [] },
    { what: "a slot that the map does not have, since another program wrote it", slot: 2, found: [] },
  ])("a frontend that leads to $what: $found", ({ slot, found }) => {
    const value = Buffer.alloc(4);
    value.writeUInt32LE(slot);
    const contents = { frontends: [[Buffer.from(key, "latin1"), value] as const], slots, endpoints: Buffer.alloc(0) };
    expect([...readSlots("v4", contents).values()]).toEqual(found);
  });
});

test("a change says whether anything differed, which decides whether a check has repaired something", () => {
  const missing = { place: "TCP 10.96.0.1:80", before: undefined, after: "10.1.0.1:8080" };
  const none = { frontends: [], counts: { written: 0, deleted: 0 }, shared: [] };
  expect(makeEbpfChange("v4", "full", none)).toMatchObject({ mode: "none" });
  const one = makeEbpfChange("v4", "full", { ...none, frontends: [missing], counts: { written: 1, deleted: 0 } });
  expect([one.mode, one.differences().map(({ summary }) => summary)]).toEqual(["full", ["TCP 10.96.0.1:80: missing"]]);
});
