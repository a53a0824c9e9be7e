import { createClient, createRouterTransport } from "@connectrpc/connect";
import {
  Health as HealthService,
  HealthCheckResponse_ServingStatus as Status,
} from "@kpng/model/gen/grpc/health/v1/health_pb.ts";
import { Health } from "@kpng/process/health/health.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { proxyNamesOf } from "../session/requests.ts";
import { Subscribers } from "../session/subscribers.ts";
import { makeRoutes } from "./routes.ts";

test("a watch of health reports a change that happens while the last status is being sent", async () => {
  const stop = new AbortController();
  const health = new Health();
  health.setReady("source");
  const subscribers = new Subscribers(new Store(), new Registry());
  const routes = makeRoutes({ health, subscribers, proxyNames: proxyNamesOf([]) }, stop.signal);
  const client = createClient(HealthService, createRouterTransport(routes));
  const answers = client.watch({}, { signal: stop.signal })[Symbol.asyncIterator]();
  expect((await answers.next()).value?.status).toBe(Status.SERVING);
  // The service is only asked for the next status by the next call of `next`.
  health.setWaiting("source", "no list yet");
  expect((await answers.next()).value?.status).toBe(Status.NOT_SERVING);
  stop.abort();
});
