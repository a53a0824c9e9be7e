import { create } from "@bufbuild/protobuf";
import { ExplainRequestSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { Service } from "@kpng/model/service.ts";
import { expect, test } from "vitest";
import { Store } from "../store/store.ts";
import { addresses, service } from "../testing/build.ts";
import { readPacket, readSettings } from "./explain-request.ts";

function destinationOf(made: Service): string {
  const store = new Store();
  store.replace({ services: [made], slices: [], nodes: [] });
  const request = create(ExplainRequestSchema, { destination: "ns/web" });
  return readPacket(request, store.snapshot, "n1", readSettings(undefined, store.snapshot)).destination;
}

const headless = { isHeadless: true, clusterIPs: addresses() };

test("a Service as destination stands for its cluster IP, and a headless one for its first other address", () => {
  expect(destinationOf(service({ externalIPs: addresses("192.0.2.1") }))).toBe("10.96.0.1");
  expect(destinationOf(service({ ...headless, externalIPs: addresses("192.0.2.1") }))).toBe("192.0.2.1");
});

test("a destination without an address is refused with the reason that it has none", () => {
  expect(() => destinationOf(service(headless))).toThrow("ns/web has no cluster IP");
  expect(() => destinationOf(service({ ...headless, proxyName: "allip" }))).toThrow(
    'ns/web has no address: it is for an external program, headless with the proxy name "allip"',
  );
});
