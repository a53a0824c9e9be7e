import { createClient } from "@connectrpc/connect";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { service } from "@kpng/source/testing/build.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { inspection } from "../../inspect/inspection.ts";
import { Store } from "../../store/store.ts";
import { openStream } from "../../testing/watched-server.ts";
import { proxyNamesOf } from "../session/requests.ts";
import { Subscribers } from "../session/subscribers.ts";
import { localTransport } from "./serve.ts";

test("calls in the same process have every right, and end with it", async () => {
  const store = new Store();
  store.replace({ services: [service()], slices: [], nodes: [] });
  const context = { proxyNames: proxyNamesOf([]), subscribers: new Subscribers(store, new Registry()) };
  const stop = new AbortController();
  const log = createLog("error", () => undefined);
  const moreServices = [inspection(context)];
  const transport = localTransport({ ...context, health: new Health(), moreServices, log }, stop.signal);
  const services = await createClient(InspectService, transport).listServices({});
  expect(services.services.map(({ name }) => name)).toEqual(["web"]);
  const { ended } = await openStream(transport, "n1");
  stop.abort();
  await expect(ended).rejects.toThrow();
  expect(context.subscribers.open.size).toBe(0);
});
