import { create } from "@bufbuild/protobuf";
import { createHandlerContext } from "@connectrpc/connect";
import { InspectService, WatchEndpointsRequestSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { endpoint, service, slice } from "@kpng/source/testing/build.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { Store } from "../store/store.ts";
import { Subscribers } from "../stream/session/subscribers.ts";
import { RecentChanges } from "./recent-changes.ts";
import { watchMethods } from "./watches.ts";

test("if two pods share their node's address, the last row of that address is the last pod's", async () => {
  const subscribers = new Subscribers(new Store(), new Registry());
  const { watchEndpoints } = watchMethods({ subscribers, changes: new RecentChanges() });
  const call = { service: InspectService, method: InspectService.method.watchEndpoints };
  const context = createHandlerContext({ ...call, protocolName: "grpc", requestMethod: "POST", url: "http://watcher" });
  const stream = watchEndpoints(create(WatchEndpointsRequestSchema), context);
  const pods = (...names: readonly string[]) => names.map((podName) => endpoint("192.0.2.1", { podName }));
  const rows = async (slices: ReturnType<typeof pods>) => {
    subscribers.store.replace({ services: [service()], slices: [slice(slices)], nodes: [] });
    return (await stream.next()).value?.endpoints.map(({ addresses, pod }) => `${addresses} ${pod}`);
  };
  expect(await rows(pods("old", "new"))).toEqual(["192.0.2.1 old", "192.0.2.1 new"]);
  const changed = await rows([...pods("old", "new"), endpoint("10.1.0.1")]);
  expect(changed?.findLast((row) => row.startsWith("192.0.2.1"))).toBe("192.0.2.1 new");
});
