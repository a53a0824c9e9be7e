import { create } from "@bufbuild/protobuf";
import type { Endpoint } from "@kpng/model/endpoint.ts";
import { OpItemSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { encodeEndpointInfo } from "@kpng/model/wire/global-message.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { expect, test } from "vitest";
import type { ClusterSink } from "../source.ts";
import { endpoint, slice } from "../testing/build.ts";
import { estimateOpBytes, GlobalItems } from "./global-items.ts";

test("a first batch of 250 000 endpoints is within the limit of a relay with 1.5 GiB, also twice, and long names count", () => {
  const bytesWith = (serviceName: string, pod: string, nodeName: string): number => {
    const one = endpoint("10.123.123.123", { podName: `${serviceName}${pod}`, nodeName });
    const ref = { Set: SetName.GlobalEndpointInfos, Path: `default|${serviceName}|${serviceName}-a|10.123.123.123` };
    const value = { Ref: ref, Bytes: encodeEndpointInfo(slice([one], { serviceName }), one, true) };
    return estimateOpBytes(create(OpItemSchema, { Op: { case: "Set", value } })) * 250_000;
  };
  const short = bytesWith("service-1234", "-6f7c9b8d4-42", "node-123");
  const longName = "checkout-payments-gateway-1234";
  const long = bytesWith(longName, "-6f7c9b8d4-x8k2q", "ip-10-0-123-45.eu-central-1.compute.internal");
  // The path has the name of the Service twice, and the item has the names of pod and node.
  expect(long - short).toBeGreaterThan(250_000 * (2 * 18 + 21 + 36));
  // The sizing guide names this limit. An original KPNG sends each endpoint twice.
  expect(2 * long).toBeLessThan((1_536 * 1_024 ** 2 * 3) / 8);
});

test("after a second whole state the endpoints are those that the sink has kept", () => {
  const store = new Store();
  const put = (name: string, zone = "") => {
    const one = endpoint(`10.1.0.${name}`, { podName: name, zone });
    const ref = { Set: SetName.GlobalEndpointInfos, Path: `ns|web|web-a|${name}` };
    return create(OpItemSchema, {
      Op: { case: "Set", value: { Ref: ref, Bytes: encodeEndpointInfo(slice([one], { name: "web-a" }), one, true) } },
    });
  };
  const given: (readonly Endpoint[])[] = [];
  const sink: ClusterSink = {
    currency: store.currency,
    hasState: (objects) => store.hasState(objects),
    find: (kind, key) => store.find(kind, key),
    replace: (objects, origin) => store.replace(objects, origin),
    apply: (changes) => {
      for (const change of changes) if (change.kind === "put-slice") given.push(change.slice.endpoints);
    },
  };
  for (let stream = 0; stream < 2; stream++) {
    const items = new GlobalItems();
    for (const name of ["2", "1", "3"]) items.apply(put(name));
    items.deliverTo(sink);
    items.apply(put("3", "zone-a"));
    items.deliverTo(sink);
  }
  const kept = store.find("slices", "ns/web/web-a")?.endpoints ?? [];
  expect(kept).toHaveLength(3);
  expect(given.map((endpoints) => endpoints.map((one, at) => one === kept[at]))).toEqual([
    [true, true, false],
    [true, true, false],
  ]);
});
