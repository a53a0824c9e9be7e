import { create, toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { EndpointInfoSchema, NodeInfoSchema, ServiceInfoSchema } from "../gen/globalv1/api_pb.ts";
import { decodeEndpointInfo, decodeNodeInfo, decodeServiceInfo } from "./global-message.ts";

const endpoint = (init: { readonly Namespace?: string; readonly ServiceName?: string }) => () =>
  decodeEndpointInfo(toBinary(EndpointInfoSchema, create(EndpointInfoSchema, init)));

test.each([
  ["an endpoint without a Service", endpoint({ Namespace: "a" }), "an EndpointInfo has no Service"],
  ["an endpoint without a namespace", endpoint({ ServiceName: "web" }), "an EndpointInfo has no Service"],
  [
    "a node without a name",
    () => decodeNodeInfo(toBinary(NodeInfoSchema, create(NodeInfoSchema, { Node: {} }))),
    "a NodeInfo has no name",
  ],
  [
    "an empty ServiceInfo",
    () => decodeServiceInfo(toBinary(ServiceInfoSchema, create(ServiceInfoSchema))),
    "a ServiceInfo has no Service",
  ],
])("%s is refused", (_, decode, message) => {
  expect(decode).toThrow(message);
});
