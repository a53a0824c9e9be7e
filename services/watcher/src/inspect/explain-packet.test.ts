import { create } from "@bufbuild/protobuf";
import { ExplainRequestSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { Service } from "@kpng/model/service.ts";
import { addresses, service } from "@kpng/source/testing/build.ts";
import { expect, test } from "vitest";
import { Store } from "../store/store.ts";
import { readPacket } from "./explain-method.ts";
import { type ExplainSettings, findFrontend } from "./find-frontend.ts";

// test/conformance explains the packets of all scenarios.

const settings: ExplainSettings = {
  clusterCIDRs: [],
  isMasqueradeAll: false,
  nodePortAddresses: [],
};

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

test("a destination without an address is refused with the reason that it has none", () => {
  expect(() => destinationOf(service(headless))).toThrow("ns/web has no address");
});

test("a port that no Service has is explained by the Service that has the address", () => {
  const store = new Store();
  store.replace({
    services: [service(), service({ name: "db", clusterIPs: addresses("10.96.0.2") })],
    slices: [],
    nodes: [],
  });
  const request = create(ExplainRequestSchema, { destination: "10.96.0.1", port: 81 });
  const packet = readPacket(request, store.snapshot, "n1", settings);
  expect(findFrontend(store.snapshot, "n1", "", packet, settings)).toEqual({
    none: "10.96.0.1 is an address of ns/web, which has no port 81/TCP.",
  });
});
