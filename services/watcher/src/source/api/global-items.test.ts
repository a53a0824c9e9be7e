import { create } from "@bufbuild/protobuf";
import { OpItemSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { encodeEndpointInfo } from "@kpng/model/wire/global-message.ts";
import { expect, test } from "vitest";
import { endpoint, slice } from "../../testing/build.ts";
import { applyGlobalOp, defaultStateBytes, GlobalItems } from "./global-items.ts";

const mebibyte = 1_048_576;

// The guide "Sizing" names these limits of memory for 250 000 endpoints.
test.each([
  { names: "short", service: "service-1234", pod: "-6f7c9b8d4-42", node: "node-123", memoryMebibytes: 1_536 },
  {
    names: "long",
    service: "checkout-payments-gateway-1234",
    pod: "-6f7c9b8d4-x8k2q",
    node: "ip-10-0-123-45.eu-central-1.compute.internal",
    memoryMebibytes: 1_792,
  },
])("a relay with $memoryMebibytes MiB may hold 250 000 endpoints with $names names", (given) => {
  const { service, pod, node, memoryMebibytes } = given;
  const one = endpoint("10.123.123.123", { podName: `${service}${pod}`, nodeName: node });
  const of = slice([one], { name: `${service}-a`, serviceName: service });
  const items = new GlobalItems();
  const ref = { Set: SetName.GlobalEndpointInfos, Path: `default|${service}|${service}-a|10.123.123.123` };
  const value = { Ref: ref, Bytes: encodeEndpointInfo(of, one, true) };
  applyGlobalOp(items, create(OpItemSchema, { Op: { case: "Set", value } }));
  const allowed = defaultStateBytes(memoryMebibytes * mebibyte);
  expect(items.bytes * 250_000).toBeLessThan(allowed);
  // And not far below it, so that the guide does not ask for too much.
  expect(items.bytes * 250_000).toBeGreaterThan(0.8 * allowed);
});
