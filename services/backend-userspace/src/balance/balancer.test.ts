import type { EndpointAddress } from "@kpng/service-plan/service-plan.ts";
import { expect, test } from "vitest";
import { servicePlan } from "../testing/running-service.ts";
import { ServiceTraffic } from "../traffic/service-traffic.ts";
import { Balancer, type BalancerSettings } from "./balancer.ts";

const at = (...numbers: readonly number[]): readonly EndpointAddress[] =>
  numbers.map((number) => ({ address: `10.0.0.${number}`, port: 80 }));

function settings(
  endpoints: readonly EndpointAddress[],
  parts: Partial<BalancerSettings> = {},
  affinitySeconds?: number,
) {
  const [plan] = servicePlan({ endpoints, affinitySeconds }).ports;
  if (plan === undefined) throw new Error("no port");
  return {
    plan,
    draining: [],
    drainMs: 3_600_000,
    isLoop: () => false,
    ...parts,
  } as const;
}

function balancer(given: BalancerSettings, maxClients = 100): Balancer {
  return new Balancer(new ServiceTraffic("default/web"), given, maxClients, 0);
}

/** Returns the last numbers of the endpoints for these clients. */
const choose = (of: Balancer, clients: readonly string[], nowMs = 0) =>
  clients.map((client) => Number(of.choose("cluster", client, nowMs)?.address.split(".")[3]));

test("an endpoint that has just failed is chosen again only if there is no other", () => {
  const two = balancer(settings(at(1, 2)));
  const first = two.choose("cluster", "", 0);
  const tried = first === undefined ? [] : [first];
  for (let count = 0; count < 4; count++) expect(two.choose("cluster", "", 0, tried)).not.toBe(first);
  const only = balancer(settings(at(1)));
  const single = only.choose("cluster", "", 0);
  expect(only.choose("cluster", "", 0, single === undefined ? [] : [single])).toBe(single);
});

test("a client with affinity keeps its endpoint until the timeout after its last connection", () => {
  const sticky = balancer(settings(at(1, 2), {}, 10));
  expect(choose(sticky, ["a", "b", "a"])).toEqual([1, 2, 1]);
  expect(choose(sticky, ["a"], 9_000)).toEqual([1]);
  expect(choose(sticky, ["a"], 19_000)).toEqual([1]);
  // Its turn decides again.
  expect(choose(sticky, ["c", "a"], 29_001)).toEqual([1, 2]);
});

test("a client with affinity gets another endpoint when its own is removed or has failed", () => {
  const sticky = balancer(settings(at(1, 2), {}, 10));
  expect(choose(sticky, ["a", "b"])).toEqual([1, 2]);
  const failed = sticky.choose("cluster", "a", 0);
  expect(sticky.choose("cluster", "a", 0, failed === undefined ? [] : [failed])?.address).toBe("10.0.0.2");
  sticky.update(settings(at(1), {}, 10), 0);
  expect(choose(sticky, ["a", "b"])).toEqual([1, 1]);
});

test("the client that was away for the longest time is forgotten when the table is full", () => {
  const sticky = balancer(settings(at(1, 2, 3), {}, 10), 2);
  expect(choose(sticky, ["a", "b", "a", "c"])).toEqual([1, 2, 1, 3]);
  expect(choose(sticky, ["a"])).toEqual([1]);
  expect(choose(sticky, ["b"])).toEqual([1]);
});

test("an endpoint that left the plan is marked, and not if it returns or only drains", () => {
  const one = balancer(settings(at(1, 2)));
  const first = one.choose("cluster", "", 0);
  if (first === undefined) throw new Error("no endpoint");
  one.update(settings(at(2)), 1_000);
  expect(first.removedMs).toBe(1_000);
  one.update(settings(at(1, 2)), 2_000);
  expect(first.removedMs).toBeUndefined();
  one.update(settings(at(2), { draining: at(1) }), 3_000);
  expect(first.removedMs).toBeUndefined();
  one.close(4_000);
  expect(first.removedMs).toBe(4_000);
  expect(one.choose("cluster", "", 4_000)).toBeUndefined();
});
