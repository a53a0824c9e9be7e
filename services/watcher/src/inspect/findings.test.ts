import type { Endpoint } from "@kpng/model/endpoint.ts";
import { FindingSeverity } from "@kpng/model/gen/kpng/inspect/v1/finding_pb.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Service } from "@kpng/model/service.ts";
import { Health } from "@kpng/process/health/health.ts";
import { addresses, endpoint, node, service, servicePort, slice, starting } from "@kpng/source/testing/build.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { Store } from "../store/store.ts";
import { Subscribers } from "../stream/session/subscribers.ts";
import { Findings, selectFindings } from "./findings.ts";

const nowMs = 1_800_000_000_000;

/** A watcher with the findings about it. */
class Watched {
  readonly store = new Store();
  readonly health = new Health();
  readonly subscribers = new Subscribers(this.store, new Registry(), () => nowMs - 60_000);
  readonly #findings = new Findings({ ...this, hasNodes: false });

  replace(services: readonly Service[], endpoints: EndpointsByService, nodes = [cidrNode()]) {
    const slices = Object.entries(endpoints).map(([name, list]) => slice(list, { name, serviceName: name }));
    this.store.replace({ services, slices, nodes });
  }

  list = () => this.#findings.list(nowMs);

  /** *Shape:* `error service/ns/web: it has no endpoints`. */
  lines(): readonly string[] {
    return this.list().map(({ severity, subject, text }) => {
      return `${severity === FindingSeverity.ERROR ? "error" : "warning"} ${subject}: ${text}`;
    });
  }
}

type EndpointsByService = Readonly<Record<string, readonly Endpoint[]>>;

function cidrNode(fields: Partial<Node> = {}): Node {
  return node("n1", { podCIDRs: ["10.1.0.0/24"], ...fields });
}

function findingsOf(services: readonly Service[], endpoints: EndpointsByService = {}) {
  const watched = new Watched();
  watched.replace(services, endpoints);
  return watched.lines();
}

test("a deleted Service has no findings, even if the zones of the nodes change at the same time", () => {
  const watched = new Watched();
  watched.replace([service()], {});
  expect(watched.lines()).toEqual(["warning service/ns/web: it has no endpoints: connections are refused"]);
  watched.replace([], {}, [cidrNode({ zone: "z2" })]);
  expect(watched.lines()).toEqual(["warning watcher: it holds no Service"]);
});

test("a cluster in order has no findings", () => {
  const services = [
    service(),
    service({ name: "db", isHeadless: true, clusterIPs: addresses() }),
    service({ name: "away", type: "ExternalName", clusterIPs: addresses() }),
  ];
  expect(findingsOf(services, { web: [endpoint("10.1.0.1")] })).toEqual([]);
});

test("findings follow changes of Services, slices and zones", () => {
  const watched = new Watched();
  const hinted = endpoint("10.1.0.1", { hintedZones: ["a"] });
  watched.replace([service()], { old: [endpoint("10.1.0.9")] }, [cidrNode({ zone: "a" })]);
  expect(watched.lines()).toEqual([
    "warning service/ns/old: EndpointSlices name it, but it does not exist",
    "warning service/ns/web: it has no endpoints: connections are refused",
  ]);
  watched.replace([service()], { web: [hinted] }, [cidrNode({ zone: "a" })]);
  expect(watched.lines()).toEqual([]);
  watched.replace([service()], { web: [hinted] }, [cidrNode({ zone: "b" })]);
  expect(watched.lines()).toEqual([
    "warning service/ns/web: its hints name no endpoint for zone b, whose nodes use all endpoints",
  ]);
  watched.replace([service()], { web: [hinted, endpoint("10.1.0.2")] }, [cidrNode({ zone: "a" })]);
  expect(watched.lines()).toEqual([
    "warning service/ns/web: 1 of 2 ready endpoints have no zone hint, so no hint is used",
  ]);
});

const claimant = (name: string, createdSeconds: number, fields: Partial<Service>) =>
  service({ name, createdSeconds, clusterIPs: addresses(), ...fields });
test.each([
  {
    name: "two Services at one address: the younger gets no packets",
    services: [
      claimant("a", 2, { externalIPs: addresses("192.0.2.9") }),
      claimant("b", 1, { externalIPs: addresses("192.0.2.9") }),
      claimant("c", 3, { externalIPs: addresses("192.0.2.9"), ports: [servicePort({ port: 81 })] }),
    ],
    findings: ["error service/ns/a: it gets no packets at 192.0.2.9:80/TCP, which service/ns/b has"],
  },
  {
    name: "two Services at one node port",
    services: [
      claimant("a", 1, { ports: [servicePort({ nodePort: 30_080 })] }),
      claimant("b", 2, { ports: [servicePort({ nodePort: 30_080, port: 81 })] }),
    ],
    findings: ["error service/ns/b: it gets no packets at node port 30080/TCP, which service/ns/a has"],
  },
  {
    name: "two Services with the same whole address",
    services: [
      claimant("a", 1, { externalIPs: addresses("192.0.2.9"), mapIP: true, ports: [] }),
      claimant("b", 2, { externalIPs: addresses("192.0.2.9"), mapIP: true }),
      claimant("c", 3, { externalIPs: addresses("192.0.2.9"), ports: [servicePort({ port: 81 })] }),
    ],
    findings: ["error service/ns/b: it gets no packets at 192.0.2.9 as a whole, which service/ns/a has"],
  },
])("$name", ({ services, findings }) => {
  const endpoints = Object.fromEntries(services.map(({ name }) => [name, [endpoint("10.1.0.1")]]));
  expect(findingsOf(services, endpoints)).toEqual(findings);
  expect(findingsOf(services.toReversed(), endpoints)).toEqual(findings);
});

test("whole addresses that a node's backend does not serve, that are a node's, or that have no endpoints", () => {
  const watched = new Watched();
  const owner = service({ mapIP: true, externalIPs: addresses("192.0.2.9", "192.0.2.1") });
  const headless = service({ name: "all", isHeadless: true, mapIP: true, clusterIPs: addresses(), ports: [] });
  watched.replace([owner, headless], { web: [endpoint("10.1.0.1")] }, [cidrNode({ addresses: ["192.0.2.1"] })]);
  for (const [nodeName, program, proxyName] of [
    ["n4", "kpng-ipvs", ""],
    ["n2", "kpng-ipvs", ""],
    ["n3", "kpng-nft", ""],
    ["n9", "kpng-userspace", "other"],
  ] as const) {
    Object.assign(watched.subscribers.make("local", "").open(), { nodeName, program, proxyName });
  }
  expect(watched.lines()).toEqual([
    "error service/ns/all: it asks for whole addresses, and kpng-ipvs serves only its ports on n2, n4",
    "error service/ns/web: it asks for whole addresses, and kpng-ipvs serves only its ports on n2, n4",
    "error service/ns/web: it asks for the whole address 192.0.2.1 of node/n1: other nodes no longer reach that node there",
    "warning service/ns/all: it has no endpoints: connections are refused",
  ]);
});

test("a part that is not ready is an error, and a part that warns a warning", () => {
  const watched = new Watched();
  watched.health.setWaiting("source/file", "reading the input");
  expect(watched.lines()).toEqual(["error watcher: source/file: reading the input"]);
  watched.health.set("certificate", { isHealthy: true, isReady: true, reason: "expires at noon" });
  expect(watched.lines()).toContain("warning watcher: certificate: expires at noon");
});

test("a request selects the findings of a namespace, or about an object, and counts beyond the limit", () => {
  const watched = new Watched();
  const services = Array.from({ length: 1_200 }, (_, at) => {
    return service({ name: `s${at}`, namespace: at < 1_100 ? "a" : "ns", clusterIPs: addresses() });
  });
  watched.replace(services, { s1100: [endpoint("10.1.0.1", { conditions: starting })] });
  const counts = (request: { readonly namespace?: string; readonly object?: string }) => {
    const { findings, ...rest } = selectFindings(watched.list(), { namespace: "", object: "", ...request });
    return [rest.errorCount, rest.warningCount, findings.length];
  };
  expect(counts({})).toEqual([1, 1_199, 1_000]);
  expect(counts({ namespace: "ns" })).toEqual([1, 99, 100]);
  expect(counts({ object: "service/a/s7" })).toEqual([0, 1, 1]);
  watched.health.set("source/current", { isHealthy: false, isReady: true, reason: "the state may be out of date" });
  expect(counts({ object: "watcher" })).toEqual([1, 0, 1]);
});
