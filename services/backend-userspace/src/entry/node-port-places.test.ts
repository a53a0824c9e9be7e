import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { expect, test } from "vitest";
import { nodePortPlaces } from "./node-port-places.ts";

const local = ["127.0.0.1", "192.0.2.1", "198.51.100.7", "10.96.0.1", "::1", "fe80::1", "2001:db8::1"];
const isOwn = (address: string): boolean => address === "10.96.0.1";

test("a node port is at each address of the node, except loopback, link-local and Services' own addresses", () => {
  const node = { plan: nodePlan({ nodePortAddresses: "all" }), localAddresses: local };
  expect(nodePortPlaces(node, isOwn)).toEqual(["192.0.2.1", "198.51.100.7", "2001:db8::1"]);
});

test("with listed addresses, a node port is at these alone", () => {
  const node = { plan: nodePlan({ nodePortAddresses: ["198.51.100.7", "127.0.0.1"] }), localAddresses: local };
  expect(nodePortPlaces(node, isOwn)).toEqual(["198.51.100.7"]);
});
