import { createClient } from "@connectrpc/connect";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { NodeViewService } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import { Health } from "@kpng/process/health/health.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { inspection } from "../../inspect/inspection.ts";
import { Store } from "../../store/store.ts";
import { service } from "../../testing/build.ts";
import { proxyNamesOf } from "../session/requests.ts";
import { Subscribers } from "../session/subscribers.ts";
import { localTransport } from "./routes.ts";

test("calls in the same process have every right, although they come from no connection", async () => {
  const store = new Store();
  store.replace({ services: [service()], slices: [], nodes: [] });
  const context = { store, proxyNames: proxyNamesOf([]), subscribers: new Subscribers(new Registry()) };
  const stop = new AbortController();
  const transport = localTransport(
    { ...context, health: new Health(), moreServices: [inspection(context)] },
    stop.signal,
  );
  const view = await createClient(NodeViewService, transport).getNodeView({ nodeName: "n1" });
  expect(view.items.map((item) => item.service?.Name)).toEqual(["web"]);
  const services = await createClient(InspectService, transport).listServices({});
  expect(services.services.map(({ name }) => name)).toEqual(["web"]);
  stop.abort();
});
