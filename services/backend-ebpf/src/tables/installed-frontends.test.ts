import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { describe, expect, test } from "vitest";
import { numberBytes, rangeKey } from "../layout/keys.ts";
import { sizes } from "../layout/map-layouts.ts";
import { encodeRoute } from "../layout/routes.ts";
import { frontend, servicePlan } from "../testing/plans.ts";
import { describeInstalled, type MapContents, readFrontends } from "./installed-frontends.ts";
import { describeFrontend, type WantedFrontend, wantedService } from "./wanted-service.ts";

const sources = { ranges: ["192.0.2.0/24", "198.51.100.7/32"], ownAddresses: [] };
const [wanted] = wantedService(
  servicePlan("ns/web", [frontend({ kind: "loadBalancerIP", sources })], ["10.1.1.1", "10.1.2.1"]),
  undefined,
  nodePlan({ family: "v4" }),
).frontends as [WantedFrontend];

/** Returns maps with one frontend in slot 1, whose run begins at element 2, and its source ranges under id 3. */
function contents(): MapContents {
  const slots = Buffer.alloc(2 * sizes.slot);
  const endpoints = Buffer.alloc(8 * sizes.endpoint);
  for (const [index, { flags, run, ranges }] of wanted.routes.entries()) {
    run?.copy(endpoints, 2 * sizes.endpoint);
    const word = encodeRoute(flags, ranges.length === 0 ? 0 : 3, run === undefined ? 0 : 2);
    slots.writeBigUInt64LE(word, sizes.slot + index * 8);
  }
  wanted.key.copy(slots, sizes.slot + 24);
  const ranges = sources.ranges.map((range) => [rangeKey(3, range), numberBytes(1)] as const);
  return { frontends: [[wanted.key, numberBytes(1)]], ranges, slots, endpoints };
}

describe("frontends in maps", () => {
  test("are described in the words of the plan that they were written from", () => {
    const [line] = describeInstalled("v4", contents()).values();
    expect(`${line} # ns/web`).toBe(describeFrontend(wanted));
  });

  test("belong to one family", () => {
    expect(describeInstalled("v6", contents()).size).toBe(0);
  });

  test.each([
    { name: "whose slot has another key", change: (maps: MapContents) => maps.slots.writeUInt8(1, sizes.slot + 24) },
    { name: "whose slot does not exist", change: (maps: MapContents) => maps.frontends[0]?.[1].writeUInt32LE(9) },
  ])("$name are not there", ({ change }) => {
    const maps = contents();
    change(maps);
    expect(readFrontends("v4", maps).size).toBe(0);
  });

  test("whose run exceeds the memory have no endpoints", () => {
    const maps = contents();
    maps.endpoints.writeUInt32LE(1_000, 2 * sizes.endpoint + 8);
    expect([...describeInstalled("v4", maps).values()][0]).not.toContain("10.1.1.1");
  });
});
