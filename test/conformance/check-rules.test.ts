import { expect, test } from "vitest";
import { web } from "../scenario/build.ts";
import { inside } from "../scenario/everywhere.ts";
import type { Scenario } from "../scenario/scenario.ts";
import { checkOutcomes } from "./check-rules.ts";

const scenario: Scenario = {
  name: "",
  state: web({}, ["b"]),
  packets: [
    {
      ...{ ...inside, goesTo: ["b"], protocol: "tcp", family: "v4" },
      except: { nft: { verdict: "silent", because: "it is an example" } },
    },
  ],
};

test("a backend with an exception must have its own outcome, and every other proxy the common one", () => {
  const dropped = () => [{ kind: "dropped" }] as const;
  expect(checkOutcomes(scenario, "nft", dropped)).toEqual([]);
  for (const proxy of ["kube-proxy", "iptables", "ipvs"] as const) {
    expect(checkOutcomes(scenario, proxy, dropped)).toEqual([expect.stringContaining("should be b; found")]);
  }
});

test("a backend that does what all others do, in spite of its exception, is wrong", () => {
  const served = () => [{ kind: "to", address: "10.1.1.12", port: 8080, isMasqueraded: false }] as const;
  expect(checkOutcomes(scenario, "iptables", served)).toEqual([]);
  expect(checkOutcomes(scenario, "nft", served)).toEqual([
    expect.stringContaining("should be silent (because it is an example); found"),
  ]);
});
