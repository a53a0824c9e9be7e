import { fromJsonString } from "@bufbuild/protobuf";
import {
  Action,
  EndpointSet,
  FrontendKind,
  type Frontend as FrontendMessage,
  type Route as RouteMessage,
  type ServicePlan as ServicePlanMessage,
  WatchResponseSchema,
} from "@kpng/model/gen/kpng/plan/v1/plan_pb.ts";
import { endpoint, port, service } from "@kpng/model/testing/views.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import type { Route, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { describePlan } from "@kpng/service-plan/testing/describe-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { nodePlanOf, onRandomStates, plansOf } from "@kpng/service-plan/testing/random-views.ts";
import { expect, test } from "vitest";
import { nodeOperation, operationLine, serviceOperation } from "./plan-message.ts";

/** Reads a line as a program in another language would. */
function read(line: string) {
  expect(line.endsWith("}\n")).toBe(true);
  return fromJsonString(WatchResponseSchema, line).operation;
}

/** A plan made from a message only, by what the proto file says about its fields. */
function planOf({ namespace, name, ports, whole, hairpin, healthCheck }: ServicePlanMessage): ServicePlan {
  const frontendsOf = (frontends: readonly FrontendMessage[], protocol: string | undefined) =>
    frontends.map((frontend) => ({
      ...frontend,
      kind: kinds[frontend.kind],
      address: frontend.address || undefined,
      protocol,
      port: frontend.port || undefined,
      sources: frontend.sources.length === 0 ? undefined : { ranges: frontend.sources, ownAddresses: [] },
      routes: { pod: routeOf(frontend.pod), node: routeOf(frontend.node), outside: routeOf(frontend.outside) },
    }));
  const endpointsOf = (addresses: readonly string[]) => addresses.map((address) => ({ address }));
  return {
    key: `${namespace}/${name}`,
    family: "v4",
    hairpin,
    healthCheck,
    ports: ports.map((port) => ({
      ...port,
      protocol: protocols[port.protocol],
      affinitySeconds: port.affinitySeconds || undefined,
      sets: port,
      frontends: frontendsOf(port.frontends, protocols[port.protocol]),
    })),
    whole: whole && {
      affinitySeconds: whole.affinitySeconds || undefined,
      sets: { cluster: endpointsOf(whole.cluster), local: endpointsOf(whole.local) },
      frontends: frontendsOf(whole.frontends, undefined),
    },
  } as ServicePlan;
}

const protocols: Readonly<Record<number, string>> = { 1: "TCP", 2: "UDP", 3: "SCTP" };
const kinds: Readonly<Record<FrontendKind, string>> = {
  [FrontendKind.UNSPECIFIED]: "?",
  [FrontendKind.CLUSTER_IP]: "clusterIP",
  [FrontendKind.EXTERNAL_IP]: "externalIP",
  [FrontendKind.LOAD_BALANCER_IP]: "loadBalancerIP",
  [FrontendKind.NODE_PORT]: "nodePort",
};

function routeOf(route: RouteMessage | undefined): Route {
  if (route?.action === Action.REFUSE) return { kind: "refuse" };
  if (route?.action === Action.DROP) return { kind: "drop" };
  const set = route?.set === EndpointSet.LOCAL ? "local" : "cluster";
  return { kind: "balance", set, isMasqueraded: route?.isMasqueraded ?? false };
}

test("a program that reads the lines knows the whole plan, in random states", () => {
  // An own address is sent as a CIDR.
  const plain = (plan: ServicePlan) =>
    describePlan(plan).map((line) => line.replaceAll(/(?<=\d)\/32(?=[ :])|(?<=[0-9a-f])\/128(?=[ :])/g, ""));
  onRandomStates(50, (state, family) => {
    for (const plan of plansOf(state, nodePlanOf(state, family))) {
      const operation = read(operationLine(serviceOperation(plan, state.view.services.get(plan.key))));
      if (operation.case !== "service") expect.fail("not a Service");
      expect(plain(planOf(operation.value))).toEqual(plain(plan));
    }
  });
});

test("a UDP port names the endpoints that still answer, also if they get no new flows", () => {
  const udp = [port(53, { protocol: "UDP" })];
  const ends = endpoint("10.1.0.2", {
    use: { cluster: false, local: false },
    conditions: { ready: false, serving: true, terminating: true },
  });
  const view = service("a/dns", { ports: udp, endpoints: [endpoint("10.1.0.1"), ends] });
  const operation = read(operationLine(serviceOperation(planService(view, nodePlan()), view)));
  if (operation.case !== "service") expect.fail("not a Service");
  const [first] = operation.value.ports;
  expect(first?.cluster.map(({ address }) => address)).toEqual(["10.1.0.1"]);
  expect(first?.answering.map(({ address }) => address)).toEqual(["10.1.0.1", "10.1.0.2"]);
});

test("whole addresses come in a field of their own, which the line of another Service does not have", () => {
  const line = (mapIP: boolean): string => {
    const drains = endpoint("10.1.0.2", {
      use: { cluster: false, local: false },
      conditions: { ready: false, serving: true, terminating: true },
    });
    const view = service("a/all", { mapIP, ports: [port(80)], endpoints: [endpoint("10.1.0.1"), drains] });
    return operationLine(serviceOperation(planService(view, nodePlan()), view));
  };
  const { whole, ...others } = JSON.parse(line(true)).service;
  expect({ service: others }).toEqual(JSON.parse(line(false)));
  expect(whole).toMatchObject({
    ...{ cluster: ["10.1.0.1"], local: [], answering: ["10.1.0.1", "10.1.0.2"] },
    frontends: [{ kind: "FRONTEND_KIND_CLUSTER_IP", address: "10.96.0.10", port: 0 }],
  });
});

test.each([
  { podTraffic: { kind: "source", cidr: "10.0.0.0/8" }, field: '"podCidr":"10.0.0.0/8"' },
  { podTraffic: { kind: "interface", name: "cbr0" }, field: '"podInterface":"cbr0"' },
  { podTraffic: { kind: "interfacePrefix", prefix: "veth" }, field: '"podInterfacePrefix":"veth"' },
  { podTraffic: undefined, field: '"family":"FAMILY_IPV4"' },
] as const)("the node says how to recognize pods: $field", ({ podTraffic, field }) => {
  const line = operationLine(nodeOperation(nodePlan({ podTraffic, nodePortAddresses: ["192.0.2.1"] })));
  expect(line).toContain(field);
  expect(line).toContain('"isAllNodePortAddresses":false,"nodePortAddresses":["192.0.2.1"]');
});
