import { create } from "@bufbuild/protobuf";
import { OpItemSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { encodeEndpointInfo } from "@kpng/model/wire/global-message.ts";
import { expect, test } from "vitest";
import { endpoint, slice } from "../testing/build.ts";
import { estimateOpBytes } from "./global-items.ts";

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
