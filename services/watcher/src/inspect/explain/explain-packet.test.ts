import { expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { addresses, endpoint, node, service, servicePort, slice } from "../../testing/build.ts";
import { explainPacket } from "./explain-packet.ts";
import type { ProxySettings } from "./packet.ts";

const store = new Store();
store.replace({ services: [service()], slices: [slice([endpoint("10.1.0.1")])], nodes: [node("n1")] });

function masqueradeOf(sourceAddress: string | undefined, clusterCIDRs: ProxySettings["clusterCIDRs"]): string {
  const { steps } = explainPacket(
    store.snapshot,
    "n1",
    "",
    { family: "v4", protocol: "TCP", source: "pod", sourceAddress, destination: "10.96.0.1", port: 80 },
    { clusterCIDRs, isMasqueradeAll: false, nodePortAddresses: [], isLocalhostNodePorts: true, moreNodeAddresses: [] },
  );
  return steps.find(({ stage }) => stage === "masquerade")?.text ?? "";
}

test("the explanation mentions the cluster CIDR only for a sender with an address", () => {
  expect(masqueradeOf(undefined, [])).toContain("the sender is a pod");
  expect(masqueradeOf("10.1.0.9", ["10.1.0.0/16"])).toContain("the sender is in the cluster CIDR");
  expect(masqueradeOf("10.1.0.9", [])).toContain("the sender is outside the cluster CIDR");
});

test("a packet to an address of a headless Service with a proxy name is for an external program", () => {
  const owned = service({ isHeadless: true, proxyName: "allip", externalIPs: addresses("198.51.100.10"), ports: [] });
  const other = new Store();
  other.replace({ services: [owned], slices: [], nodes: [] });
  const settings = {
    clusterCIDRs: [],
    isMasqueradeAll: false,
    nodePortAddresses: [],
    isLocalhostNodePorts: true,
    moreNodeAddresses: [],
  };
  const packet = { family: "v4", protocol: "TCP", source: "outside", destination: "198.51.100.10", port: 80 } as const;
  for (const proxyName of ["", "allip"]) {
    const { steps, verdict } = explainPacket(
      other.snapshot,
      "n1",
      proxyName,
      { ...packet, sourceAddress: undefined },
      settings,
    );
    expect(verdict).toBe("untouched");
    expect(steps[0]?.text).toBe(
      '198.51.100.10 is an address of ns/web, which is for an external program: it is headless and has the proxy name "allip".',
    );
  }
});

test("of two Services with the same frontend, the older answers", () => {
  const both = new Store();
  both.replace({
    services: [service({ name: "a-web", createdSeconds: 2 }), service({ createdSeconds: 1 })],
    slices: [slice([endpoint("10.1.0.1")])],
    nodes: [],
  });
  const packet = { family: "v4", protocol: "TCP", source: "pod", destination: "10.96.0.1", port: 80 } as const;
  const settings = {
    clusterCIDRs: [],
    isMasqueradeAll: false,
    nodePortAddresses: [],
    isLocalhostNodePorts: true,
    moreNodeAddresses: [],
  };
  const { frontend, verdict } = explainPacket(
    both.snapshot,
    "n1",
    "",
    { ...packet, sourceAddress: undefined },
    settings,
  );
  expect(frontend?.service.name).toBe("web");
  expect(verdict).toBe("forward");
});

test.each([
  { name: "without endpoints", owners: [], answers: "web", isSaid: true },
  { name: "with an endpoint", owners: [endpoint("10.1.0.2")], answers: "ip", isSaid: false },
])("a node port at an external IP of a Service $name: $answers answers", ({ owners, answers, isSaid }) => {
  const both = new Store();
  const at = { clusterIP: "10.96.0.2", externalIPs: addresses("192.0.2.1"), ports: [servicePort({ port: 30_080 })] };
  const nodePort = { type: "NodePort", ports: [servicePort({ nodePort: 30_080 })] } as const;
  both.replace({
    services: [service({ name: "ip", ...at }), service(nodePort)],
    slices: [slice([endpoint("10.1.0.1")]), slice(owners, { name: "ip-1", serviceName: "ip" })],
    nodes: [node("n1")],
  });
  const place = { destination: "192.0.2.1", port: 30_080 };
  const { frontend, verdict, steps } = explainPacket(
    both.snapshot,
    "n1",
    "",
    { family: "v4", protocol: "TCP", source: "outside", sourceAddress: undefined, ...place },
    {
      ...{ clusterCIDRs: [], isMasqueradeAll: false, nodePortAddresses: [], isLocalhostNodePorts: true },
      moreNodeAddresses: ["192.0.2.1"],
    },
  );
  expect([frontend?.service.name, verdict]).toEqual([answers, "forward"]);
  const said = "192.0.2.1:30080 is also a place of ns/ip, which has no endpoint: kpng-ipvs and";
  expect(steps.some(({ text }) => text.includes(said))).toBe(isSaid);
});
