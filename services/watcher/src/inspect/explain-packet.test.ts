import { create } from "@bufbuild/protobuf";
import { ProxySettingsSchema, SourceKind, Verdict } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { ExplainRequestSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { Service } from "@kpng/model/service.ts";
import { addresses, endpoint, node, service, servicePort, slice } from "@kpng/source/testing/build.ts";
import { expect, test } from "vitest";
import { Store } from "../store/store.ts";
import { readPacket, readSettings } from "./explain-method.ts";
import { explainPacket } from "./explain-packet.ts";
import type { ExplainSettings } from "./find-frontend.ts";

// test/conformance explains the packets of all scenarios.

const settings: ExplainSettings = {
  clusterCIDRs: [],
  isMasqueradeAll: false,
  nodePortAddresses: [],
  isLoopbackNodePorts: true,
  moreNodeAddresses: ["192.0.2.1"],
};

test.each([
  { name: "without endpoints", owners: [], answers: "web" },
  { name: "with an endpoint", owners: [endpoint("10.1.0.2")], answers: "ip" },
])("a node port at an external IP of a Service $name: $answers answers", ({ owners, answers }) => {
  const both = new Store();
  const at = { clusterIP: "10.96.0.2", externalIPs: addresses("192.0.2.1"), ports: [servicePort({ port: 30_080 })] };
  const nodePort = { type: "NodePort", ports: [servicePort({ nodePort: 30_080 })] } as const;
  both.replace({
    services: [service({ name: "ip", ...at }), service(nodePort)],
    slices: [slice([endpoint("10.1.0.1")]), slice(owners, { name: "ip-1", serviceName: "ip" })],
    nodes: [node("n1")],
  });
  const packet = { family: "v4", protocol: "TCP", destination: "192.0.2.1", port: 30_080 } as const;
  const sent = { ...packet, source: SourceKind.OUTSIDE, sourceAddress: undefined };
  const { service: owner, verdict } = explainPacket(both.snapshot, "n1", "", sent, settings);
  expect([owner, verdict]).toEqual([answers, Verdict.FORWARD]);
});

function destinationOf(made: Service): string {
  const other = new Store();
  other.replace({ services: [made], slices: [], nodes: [] });
  const request = create(ExplainRequestSchema, { destination: "ns/web" });
  return readPacket(request, other.snapshot, "n1", settings).destination;
}

const headless = { isHeadless: true, clusterIPs: addresses() };

test("a Service as destination stands for its cluster IP, and a headless one for its first other address", () => {
  expect(destinationOf(service({ externalIPs: addresses("192.0.2.1") }))).toBe("10.96.0.1");
  expect(destinationOf(service({ ...headless, externalIPs: addresses("192.0.2.1") }))).toBe("192.0.2.1");
});

test("further addresses of the node are recognized in any spelling", () => {
  const message = create(ProxySettingsSchema, { moreNodeAddresses: ["FD00:0::1", "192.0.2.1"] });
  expect(readSettings(message, new Store().snapshot).moreNodeAddresses).toEqual(["fd00::1", "192.0.2.1"]);
});

test("a destination without an address is refused with the reason that it has none", () => {
  expect(() => destinationOf(service(headless))).toThrow("ns/web has no address");
});
