import { families } from "@kpng/model/address.ts";
import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import { EndpointReason } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import type { Service } from "@kpng/model/service.ts";
import { makePick, makeRandom } from "@kpng/process/testing/random.ts";
import { describe, expect, test } from "vitest";
import {
  addresses,
  draining,
  endpoint,
  httpPort,
  ready,
  service,
  servicePort,
  slice,
  starting,
} from "../testing/build.ts";
import { makeServiceView } from "../view/service-view.ts";

import { type Decision, type DecisionReason, decisionRow, explainService, reasonTexts } from "./explain-service.ts";

const here = { name: "n1", zone: "z1" };

function explain(fields: Partial<Service>, slices: readonly EndpointSlice[], proxyName = ""): readonly Decision[] {
  return explainService({ namespace: "ns", name: "web", service: service(fields), slices }, here, proxyName);
}

const brief = (decisions: readonly Decision[]): string[] =>
  decisions.map(({ address, portName, isUsed, reason }) => `${address} ${portName} ${isUsed ? "used" : "-"} ${reason}`);

const outside = endpoint("10.1.0.9", { nodeName: "n9" });
const loadBalancer = { type: "LoadBalancer", loadBalancerIPs: addresses("198.51.100.1") } as const;

describe("an endpoint is", () => {
  test("used or not for the reason of the choice", () => {
    const slices = [slice([endpoint("10.1.0.1"), endpoint("10.1.0.2", { conditions: starting })])];
    expect(brief(explain({}, slices))).toEqual(["10.1.0.1 http used ready", "10.1.0.2 http - not-ready"]);
  });

  test("judged by the local set if only that is needed", () => {
    const slices = [slice([endpoint("10.1.0.1"), outside])];
    expect(brief(explain({ internalTrafficPolicy: "Local" }, slices))).toEqual([
      "10.1.0.1 http used ready",
      "10.1.0.9 http - not-on-node",
    ]);
  });

  test("judged by the cluster set if both are needed", () => {
    const [decision] = explain({ ...loadBalancer, externalTrafficPolicy: "Local" }, [slice([outside])]);
    expect(decision).toMatchObject({
      isUsed: true,
      use: { cluster: true, local: false },
      reasons: { cluster: "ready", local: "not-on-node" },
    });
  });

  test("used only by the local set, as its last resort", () => {
    const slices = [slice([endpoint("10.1.0.1", { conditions: draining }), outside])];
    expect(explain({ ...loadBalancer, externalTrafficPolicy: "Local" }, slices)[0]).toMatchObject({
      isUsed: true,
      reason: "last-resort",
      reasons: { cluster: "terminating", local: "last-resort" },
    });
  });

  test("a duplicate if a better slice contains it", () => {
    const slices = [
      slice([endpoint("10.1.0.1", { conditions: draining })]),
      slice([endpoint("10.1.0.1")], { name: "b" }),
    ];
    expect(brief(explain({}, slices))).toEqual(["10.1.0.1 http - duplicate", "10.1.0.1 http used ready"]);
  });

  test("unused for a port that the Service lacks, and reported for a service port that it lacks", () => {
    const slices = [slice([endpoint("10.1.0.1", { ports: [{ ...httpPort, name: "metrics" }] })])];
    expect(brief(explain({}, slices))).toEqual(["10.1.0.1 metrics - no-service-port", "10.1.0.1 http - no-such-port"]);
  });

  test("unused in a family that the Service does not have", () => {
    expect(brief(explain({}, [slice([endpoint("fd00::1")])]))).toEqual(["fd00::1 http - other-family"]);
  });

  test("in the view but not proxied for a headless Service", () => {
    const headless = { isHeadless: true, clusterIPs: addresses() };
    expect(explain(headless, [slice([endpoint("10.1.0.1")])])[0]).toMatchObject({
      isUsed: false,
      reason: "not-proxied",
      use: { cluster: true },
    });
  });

  test("for an external program if the Service is headless and has a proxy name, and used if the program gets it", () => {
    const headless = { isHeadless: true, proxyName: "allip", clusterIPs: addresses() };
    const slices = [
      slice([endpoint("10.1.0.1")]),
      slice([endpoint("10.1.0.2", { conditions: starting })], { name: "b" }),
    ];
    const texts = (proxyName: string) => explain(headless, slices, proxyName).map((each) => decisionRow(each).text);
    expect(brief(explain(headless, slices, "allip"))).toEqual([
      "10.1.0.1 http used external-program",
      "10.1.0.2 http - external-program",
    ]);
    expect(texts("allip")).toEqual([
      "for an external program: it is ready",
      "for an external program: it is not ready",
    ]);
    expect(new Set(texts(""))).toEqual(
      new Set(["for an external program: the Service is headless and belongs to another service proxy"]),
    );
  });

  test("unused for a Service of another proxy or a missing Service", () => {
    const slices = [slice([endpoint("10.1.0.1")])];
    expect(brief(explain({ proxyName: "cilium" }, slices))).toEqual(["10.1.0.1 http - other-service-proxy"]);
    expect(brief(explain({ proxyName: "cilium" }, slices, "cilium"))).toEqual(["10.1.0.1 http used ready"]);
    const orphans = explainService({ namespace: "ns", name: "web", service: undefined, slices }, here, "");
    expect(brief(orphans)).toEqual(["10.1.0.1 http - no-service"]);
  });

  test("in the view without new traffic if it only keeps existing UDP flows", () => {
    const dns = [{ name: "dns", port: 53, protocol: "UDP" }] as const;
    const slices = [
      slice([endpoint("10.1.0.1", { conditions: draining, ports: dns }), endpoint("10.1.0.2", { ports: dns })]),
    ];
    const [old] = explain({ ports: [servicePort({ name: "dns", protocol: "UDP", port: 53 })] }, slices);
    expect(old).toMatchObject({ isUsed: false, reason: "terminating", use: { cluster: false, local: false } });
  });
});

test("each reason has a word in the API", () => {
  const [decision] = explain({}, [slice([endpoint("10.1.0.1")])]);
  if (decision === undefined) throw new Error("no decision");
  const reasons = Object.keys(reasonTexts) as DecisionReason[];
  const words = reasons.map((reason) => decisionRow({ ...decision, reason }).reason);
  expect(new Set(words).size).toBe(reasons.length);
  expect(words).not.toContain(EndpointReason.UNSPECIFIED);
});

test("decisions agree with the view for random Services and slices", () => {
  const random = makeRandom(11);
  const pick = makePick(random);
  let toldCount = 0;
  for (let round = 0; round < 2_000; round += 1) {
    const made = service({
      clusterIPs: pick(addresses("10.96.0.1"), addresses("10.96.0.1", "fd00::a"), addresses()),
      isHeadless: pick(false, false, false, true),
      internalTrafficPolicy: pick("Cluster", "Local"),
      externalTrafficPolicy: pick("Cluster", "Local"),
      ports: [servicePort(), servicePort({ name: "dns", protocol: "UDP", port: 53 })].slice(0, pick(1, 2)),
      ...pick({}, { externalIPs: addresses("192.0.2.1") }),
    });
    const slices = Array.from({ length: pick(1, 2) }, (_, at) =>
      slice(
        Array.from({ length: pick(1, 2, 4) }, () =>
          endpoint(pick("10.1.0.1", "10.1.0.2", "10.1.0.3", "fd00::1"), {
            nodeName: pick("n1", "n2", ""),
            podName: pick("", "p1", "p2"),
            conditions: pick(ready, ready, draining, starting, { ready: false, serving: false, terminating: true }),
            ports: pick([httpPort], [httpPort, { name: "dns", port: 53, protocol: "UDP" as const }], []),
            hintedZones: pick([], ["z1"], ["z2"]),
            hintedNodes: pick([], [], ["n1"], ["n2"]),
          }),
        ),
        { name: `s${at}` },
      ),
    );
    const inView = makeServiceView(made, slices, here).endpoints.flatMap(({ addresses: own, ports, use }) =>
      families.flatMap((family) =>
        own[family]
          .slice(0, 1)
          .flatMap((address) =>
            (ports.length === 0 ? [undefined] : ports).map(
              (port) => `${address} ${port?.name} ${port?.port} ${use.cluster} ${use.local}`,
            ),
          ),
      ),
    );
    const decisions = explainService({ namespace: "ns", name: "web", service: made, slices }, here, "");
    const told = decisions.flatMap(({ address, portName, port, use }) =>
      use === undefined
        ? []
        : [
            `${address} ${port === 0 ? undefined : portName} ${port === 0 ? undefined : port} ${use.cluster} ${use.local}`,
          ],
    );
    expect([...new Set(told)].sort(), JSON.stringify({ made, slices })).toEqual([...new Set(inView)].sort());
    for (const { isUsed, use } of decisions) if (isUsed) expect(use?.cluster || use?.local).toBe(true);
    toldCount += told.length;
  }
  expect(toldCount).toBeGreaterThan(2_000);
});
