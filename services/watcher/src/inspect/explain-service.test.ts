import { families } from "@kpng/model/address.ts";
import type { Endpoint, EndpointPort, EndpointSlice } from "@kpng/model/endpoint.ts";
import { EndpointReason } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import type { EndpointUse } from "@kpng/model/node-view.ts";
import { type Service, serviceKey } from "@kpng/model/service.ts";
import { makePick, makeRandom } from "@kpng/process/random.ts";
import {
  addresses,
  draining,
  endpoint,
  httpPort,
  service,
  servicePort,
  slice,
  starting,
} from "@kpng/source/testing/build.ts";
import { expect, test } from "vitest";
import { slicesOf } from "../store/snapshot.ts";
import { Store } from "../store/store.ts";
import { randomChange } from "../testing/random-change.ts";
import { makeServiceView } from "../view/service-view.ts";
import { type Decision, type DecisionReason, decisionRow, explainService, reasonTexts } from "./explain-service.ts";

const here = { name: "n1", zone: "z1" };

function explain(services: readonly Service[], slices: readonly EndpointSlice[], proxyName = ""): readonly Decision[] {
  const store = new Store();
  store.replace({ services, slices, nodes: [] });
  return explainService(store.snapshot, "ns/web", here, proxyName);
}

const brief = (decisions: readonly Decision[]): string[] =>
  decisions.map(({ address, portName, isUsed, reason }) => `${address} ${portName} ${isUsed ? "used" : "-"} ${reason}`);

const one = endpoint("10.1.0.1");
const drains = endpoint("10.1.0.1", { conditions: draining });
const outside = endpoint("10.1.0.9", { nodeName: "n9" });
const localBalancer = { loadBalancerIPs: addresses("198.51.100.1"), externalTrafficPolicy: "Local" } as const;
const headless = { isHeadless: true, clusterIPs: addresses() };
const dns = [{ name: "dns", port: 53, protocol: "UDP" }] as const;

test.each<{
  rule: string;
  of?: Partial<Service>;
  endpoints: readonly Endpoint[];
  others?: readonly Endpoint[];
  proxyName?: string;
  decisions: readonly string[];
}>([
  {
    rule: "used or not for the reason of the choice",
    endpoints: [one, endpoint("10.1.0.2", { conditions: starting })],
    decisions: ["10.1.0.1 http used ready", "10.1.0.2 http - not-ready"],
  },
  {
    rule: "judged by the local set if only that is needed",
    of: { internalTrafficPolicy: "Local" },
    endpoints: [one, outside],
    decisions: ["10.1.0.1 http used ready", "10.1.0.9 http - not-on-node"],
  },
  {
    rule: "judged by the cluster set if both are needed",
    of: localBalancer,
    endpoints: [outside],
    decisions: ["10.1.0.9 http used ready"],
  },
  {
    rule: "used only by the local set, as its last resort",
    of: localBalancer,
    endpoints: [drains, outside],
    decisions: ["10.1.0.1 http used last-resort", "10.1.0.9 http used ready"],
  },
  {
    rule: "a duplicate if a better slice contains it",
    endpoints: [drains],
    others: [one],
    decisions: ["10.1.0.1 http - duplicate", "10.1.0.1 http used ready"],
  },
  {
    rule: "unused for a port that the Service lacks, and reported for a service port that it lacks",
    endpoints: [endpoint("10.1.0.1", { ports: [{ ...httpPort, name: "metrics" }] })],
    decisions: ["10.1.0.1 metrics - no-service-port", "10.1.0.1 http - no-such-port"],
  },
  {
    rule: "unused in a family that the Service does not have",
    endpoints: [endpoint("fd00::1")],
    decisions: ["fd00::1 http - other-family"],
  },
  {
    rule: "not proxied for a headless Service",
    of: headless,
    endpoints: [one],
    decisions: ["10.1.0.1 http - not-proxied"],
  },
  {
    rule: "for an external program if the Service is headless and has a proxy name, and used if the program gets it",
    of: { ...headless, proxyName: "allip" },
    proxyName: "allip",
    endpoints: [one, endpoint("10.1.0.2", { conditions: starting })],
    decisions: ["10.1.0.1 http used external-program", "10.1.0.2 http - external-program"],
  },
  {
    rule: "unused for a Service of another proxy",
    of: { proxyName: "cilium" },
    endpoints: [one],
    decisions: ["10.1.0.1 http - other-service-proxy"],
  },
  {
    rule: "without new traffic if it only keeps existing UDP flows",
    of: { ports: [servicePort({ name: "dns", protocol: "UDP", port: 53 })] },
    endpoints: [{ ...drains, ports: dns }, endpoint("10.1.0.2", { ports: dns })],
    decisions: ["10.1.0.1 dns - terminating", "10.1.0.2 dns used ready"],
  },
])("an endpoint is $rule", ({ of = {}, endpoints, others, proxyName, decisions }) => {
  const slices = [slice(endpoints), ...(others === undefined ? [] : [slice(others, { name: "z" })])];
  expect(brief(explain([service(of)], slices, proxyName))).toEqual(decisions);
});

test("an endpoint of a missing Service is unused", () => {
  expect(brief(explain([], [slice([one])]))).toEqual(["10.1.0.1 http - no-service"]);
});

test("each reason has a word in the API", () => {
  const [decision] = explain([service()], [slice([one])]);
  if (decision === undefined) throw new Error("no decision");
  const reasons = Object.keys(reasonTexts) as DecisionReason[];
  const words = reasons.map((reason) => decisionRow({ ...decision, reason }).reason);
  expect(new Set(words).size).toBe(reasons.length);
  expect(words).not.toContain(EndpointReason.UNSPECIFIED);
});

test("decisions agree with the view in random states", () => {
  const pick = makePick(makeRandom(11));
  const store = new Store();
  store.replace({ services: [], slices: [], nodes: [] });
  const show = (address: string, port: Pick<EndpointPort, "name" | "port"> | undefined, use: EndpointUse): string =>
    `${address} ${port?.name} ${port?.port} ${use.cluster} ${use.local}`;
  let toldCount = 0;
  for (let round = 0; round < 3_000; round += 1) {
    store.apply([randomChange(pick)]);
    const service = pick(...store.snapshot.services.values());
    if (service === undefined || service.proxyName !== "") continue;
    const slices = slicesOf(store.snapshot, serviceKey(service));
    const inView = makeServiceView(service, slices, here).endpoints.flatMap(({ addresses: own, ports, use }) =>
      families.flatMap((family) =>
        own[family]
          .slice(0, 1)
          .flatMap((address) => (ports.length === 0 ? [undefined] : ports).map((port) => show(address, port, use))),
      ),
    );
    const decisions = explainService(store.snapshot, serviceKey(service), here, "");
    const told = decisions.flatMap(({ address, portName: name, port, use }) =>
      use === undefined ? [] : [show(address, port === 0 ? undefined : { name, port }, use)],
    );
    expect([...new Set(told)].sort(), JSON.stringify({ service, slices })).toEqual([...new Set(inView)].sort());
    for (const { isUsed, use } of decisions) if (isUsed) expect(use?.cluster || use?.local).toBe(true);
    toldCount += told.length;
  }
  expect(toldCount).toBeGreaterThan(2_000);
});
